# frozen_string_literal: true

module Leasehold
  class Verifier
    # Stops a run before it destroys too large a share of a table's claims (V11), whatever the cause: a
    # wrong scope, a wrong database, a table that lost its rows.
    class DestroyLimit
      # @param share [Numeric] the largest share of the table's claims that the run may destroy
      # @yieldreturn [Hash{Symbol => Object}, nil] the report of a dry run over the whole table
      def initialize(model, share, &survey)
        @model = model
        @share = share
        @survey = survey
        @surveyed = false
      end

      # Returns true if a run that corrects would stop.
      #
      # @param planned [Hash{Symbol => Object}] the report of a dry run
      def over?(planned)
        planned.fetch(:to_destroy) > @share * planned.fetch(:records)
      end

      # Checks the share before an update is begun. If the share of the claims that were listed so far is not
      # exceeded, the share of the whole table is not either. If it is exceeded, a dry run counts the whole
      # table, at most once: the destroys may lie close together, and those of replaces count here too.
      #
      # @param report [Hash{Symbol => Object}] the counts so far
      # @param step [Verification::Begin] the update
      # @raise [Error::Misconfigured]
      def check(report, step)
        return if @surveyed || step.destroy_count.zero?
        return if report.fetch(:destroyed) + step.destroy_count <= @share * report.fetch(:records)

        planned = @survey.call
        @surveyed = true
        refuse(planned) if over?(planned)
      end

      private

      def refuse(planned)
        destroys, claims = planned.fetch_values(:to_destroy, :records)
        share = (destroys.to_f / claims).ceil(2)
        raise Error::Misconfigured.new(
          "verification would destroy #{destroys} of the #{claims} claims of `#{@model.name}`, more than the share of #{@share}: " \
          "check its table, scope and conditions with a dry run; to destroy them, pass `max_destroy_share: #{share}` " \
          "(rake task: `MAX_DESTROY_SHARE=#{share}`)", code: "TOO_MANY_DESTROYS"
        )
      end
    end
  end
end
