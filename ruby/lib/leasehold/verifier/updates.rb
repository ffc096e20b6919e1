# frozen_string_literal: true

module Leasehold
  class Verifier
    # The updates of a run, one at a time, sent as a cell sends its own: an update's lease has a row in this database before it is
    # committed, so that what is lost on the way is committed by reconciliation, and what is lost before is rolled back.
    class Updates
      # No update would get through after these.
      FATAL = [Error::Misconfigured, Error::Unauthenticated, Error::Denied].freeze
      # How long a begin may take once its run is interrupted: what it has begun is rolled back.
      GRACE_SECONDS = 1

      def initialize(model, client)
        @table = LeaseTable.new(model.connection)
        @client = client
        @within = { deadline_seconds: Leasehold.configuration.verification_deadline_seconds }
      end

      # Whether one is begun, and neither committed nor rolled back.
      def begun?
        !@lease.nil?
      end

      # Begins one.
      #
      # @param step [Verification::Begin]
      # @yieldparam call [Thread] meanwhile; for as long as it lives
      # @return [:begun, :failed, Error] the error where it was refused because of claims
      def begin(step, &meanwhile)
        # Before the call, so that the row is never younger than the lease (R04).
        @begun_at, = @table.mark
        beside(-> { @lease = @client.begin_encoded(step, **@within) }, &meanwhile)
        :begun
      rescue *FATAL
        raise
      rescue Error => error
        error.rejected.any? ? error : :failed
      end

      # @return [:settled, :failed]
      def commit
        settle { |lease| @table.while_settled(lease, @begun_at) { @client.commit_update(lease, **@within) } }
      rescue ActiveRecord::SerializationFailure
        # Its row came too late (R04).
        :failed
      end

      # @return [:settled, :failed]
      def roll_back
        settle { |lease| @client.rollback_update(lease, **@within) }
      end

      # Rolls back what a run that fails or is interrupted has begun, if that can be done soon.
      def abandon
        settle { |lease| @client.rollback_update(lease) } if begun?
      rescue Error
        nil
      end

      private

      # Makes the call in a thread. It does nothing else, so it takes no connection to the database, and Rails' executor, in
      # which this thread runs, goes on around it.
      def beside(call)
        calling = Thread.new { quietly(&call) }
        yield calling
        calling.join
      ensure
        calling&.join(GRACE_SECONDS) || calling&.kill
      end

      # An error is told where the thread is waited for.
      def quietly
        Thread.current.report_on_exception = false
        yield
      end

      # What fails from here on is left to reconciliation.
      def settle
        lease = @lease.uuid
        @lease = nil
        yield lease
        :settled
      rescue *FATAL
        raise
      rescue Error
        :failed
      end
    end
  end
end
