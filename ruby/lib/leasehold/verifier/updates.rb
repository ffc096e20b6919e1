# frozen_string_literal: true

module Leasehold
  class Verifier
    # The updates of a run, one after the other, sent as a cell sends its own. What is lost before an update's lease has a row
    # in this database is rolled back by reconciliation; once it has one the update is as good as committed, so the next one is
    # begun while that is done.
    class Updates
      # No update would get through after these.
      FATAL = [Error::Misconfigured, Error::Unauthenticated, Error::Denied].freeze
      # How long calls may take once the run is interrupted.
      GRACE_SECONDS = 1

      def initialize(model, client)
        @connection = model.connection
        @table = LeaseTable.new(@connection)
        @client = client
        @within = { deadline_seconds: Leasehold.configuration.verification_deadline_seconds }
      end

      # That updates can be committed as a cell commits its own.
      def check
        raise ActiveRecord::TransactionIsolationError, "a transaction is open: verify outside of it" unless outside?
        return if @connection.data_source_exists?(LeaseTable::NAME)

        raise Error::Misconfigured,
              "the database has no table `#{LeaseTable::NAME}`: run the migrations of `leasehold:install` there"
      end

      # Whether one is begun, and neither written nor rolled back.
      def begun?
        !@lease.nil?
      end

      # Begins one.
      #
      # @param step [Verification::Begin]
      # @yieldparam call [Thread] meanwhile; for as long as it lives
      # @return [:begun, :failed, Error] the error where it was refused because of claims
      def begin(step, &meanwhile)
        # Who holds a claim that is to be given up is known once what was written is committed.
        finish unless step.destroy_count.zero?
        # Before the call, so that the row is never younger than the lease (R04).
        @begun_at, = @table.mark
        beside(-> { @lease = @client.begin_encoded(step, **@within) }, &meanwhile)
        :begun
      rescue *FATAL
        raise
      rescue Error => error
        error.rejected.any? ? error : :failed
      end

      # Writes the lease's row, and has it committed.
      #
      # @return [:settled, :failed]
      def commit
        finish
        lease = take_lease
        @table.insert(lease, @begun_at)
        @committed = lease
        @committing = call(-> { @client.commit_update(lease, **@within) })
        :settled
      rescue ActiveRecord::SerializationFailure
        # Too late (R04).
        :failed
      end

      # @return [:settled, :failed]
      def roll_back
        @client.rollback_update(take_lease, **@within)
        :settled
      rescue *FATAL
        raise
      rescue Error
        :failed
      end

      # Waits until what was written is committed. Where that fails the row stays, for reconciliation.
      def finish
        committing = @committing
        @committing = nil
        committing&.join
        @table.delete(@committed) if committing
      rescue *FATAL
        raise
      rescue Error
        nil
      end

      # Rolls back what a run that fails or is interrupted has begun, if that can be done soon.
      def abandon
        @client.rollback_update(take_lease) if begun?
        @committing&.join(GRACE_SECONDS) || @committing&.kill
      rescue Error
        nil
      end

      private

      def outside?
        Transactions::Record.outside?(@connection)
      end

      # What fails from here on is left to reconciliation.
      def take_lease
        @lease.uuid.tap { @lease = nil }
      end

      def beside(request)
        calling = call(request)
        yield calling
        calling.join
      ensure
        calling&.join(GRACE_SECONDS) || calling&.kill
      end

      # Calls in a thread. It does nothing else, so it takes no connection to the database, and Rails' executor, in which this
      # one runs, goes on around it. An error is told where it is waited for.
      def call(request)
        Thread.new do
          Thread.current.report_on_exception = false
          request.call
        end
      end
    end
  end
end
