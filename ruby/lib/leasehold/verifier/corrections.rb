# frozen_string_literal: true

require "securerandom"

module Leasehold
  class Verifier
    # Executes the corrections of a run: updates, one after the other, with the steps of a cell's own save.
    #
    # - If the process dies before a correction's lease has a row in this database, reconciliation rolls the
    #   lease back.
    # - If the process dies after the row is written, reconciliation commits the lease. So the commit of a
    #   lease with its row runs in the background while the next correction is begun.
    # - If a begin gets no answer, its lease is rolled back at once. Otherwise it would hold names that saves
    #   may want to change.
    class Corrections
      # Errors after which no correction can succeed.
      FATAL_ERRORS = [Error::Misconfigured, Error::Unauthenticated, Error::Denied].freeze
      # Seconds for which a run that failed or was interrupted waits for each open call.
      GRACE_SECONDS = 1

      # @param connection [ActiveRecord::ConnectionAdapters::AbstractAdapter] to the model's database
      def initialize(connection, client)
        @connection = connection
        @table = LeaseTable.new(connection)
        @client = client
        @call_options = { deadline_seconds: Leasehold.configuration.verification_deadline_seconds }
      end

      # Checks that the lease's row can be written and committed.
      #
      # @raise [ActiveRecord::TransactionIsolationError, Error::Misconfigured]
      def check
        unless Transactions::Nesting.none_open?(@connection)
          raise ActiveRecord::TransactionIsolationError, "a transaction is open: verify outside of it"
        end
        return if @connection.data_source_exists?(LeaseTable::NAME)

        raise Error::Misconfigured,
              "the database has no table `#{LeaseTable::NAME}`: run the migration of `rails generate leasehold:install`"
      end

      # Begins a correction.
      #
      # @param step [Verification::Begin]
      # @yieldparam call [Thread] makes the call, and is alive until the call is answered; the block runs
      #   meanwhile
      # @return [:begun, :failed, Error] the error if claims were refused
      def begin(step, &meanwhile)
        # Waits for the commit in the background: its lease may still hold a claim that this correction
        # destroys.
        finish unless step.destroy_count.zero?
        # The time of the lease's row is read before the call, so that the row is never younger than the lease
        # (R04).
        @begun_at, = @table.clock_and_session
        begin_lease(step, &meanwhile)
        :begun
      rescue Error => error
        forget_begin(error)
        raise if FATAL_ERRORS.any? { |fatal| error.is_a?(fatal) }

        error.rejected.any? ? error : :failed
      end

      # Writes the lease's row and starts the commit.
      #
      # @return [:settled, :failed]
      def commit
        finish
        uuid = take_lease
        unless insert_row(uuid)
          roll_back_lease(uuid)
          return :failed
        end

        @committed = uuid
        @committing = call_in_thread(-> { @client.commit_update(uuid, **@call_options) })
        :settled
      end

      # Rolls the begun correction back.
      #
      # @return [:settled, :failed]
      def roll_back
        roll_back_lease(take_lease)
      end

      # Waits for the commit in the background, and deletes the lease's row. If the commit failed, the row
      # stays for reconciliation.
      def finish
        committing = @committing
        @committing = nil
        committing&.join
        @table.delete(@committed) if committing
      rescue *FATAL_ERRORS
        raise
      rescue Error
        nil
      end

      # Rolls back the begun correction of a run that failed or is interrupted, and waits briefly for the
      # commit in the background. Reconciliation settles the rest.
      def abandon
        lease_begun? ? @client.rollback_update(take_lease) : @open_begin&.release
        @committing&.join(GRACE_SECONDS) || @committing&.kill
      rescue Error
        nil
      end

      private

      # Returns true if a correction is begun, and its lease has no row yet and is not rolled back.
      def lease_begun?
        !@lease.nil?
      end

      def begin_lease(step, &meanwhile)
        key = SecureRandom.uuid
        @open_begin = Transactions::UnansweredBegin.new(@client, step, key)
        during_call(-> { @lease = @client.begin_encoded(step, idempotency_key: key, **@call_options) }, &meanwhile)
        @open_begin = nil
      end

      # Forgets a begin that has failed. If the server may have begun its lease nevertheless, rolls that lease
      # back first.
      def forget_begin(error)
        @open_begin&.release(**@call_options) if Transactions::UnansweredBegin.outcome_unknown?(error)
        @open_begin = nil
      end

      # @return [Boolean] false if the commit guard refused the row, because the lease is too old (R04, SQLSTATE
      #   40001); the database has no row then
      def insert_row(uuid)
        @table.insert(uuid, @begun_at)
        true
      rescue ActiveRecord::SerializationFailure
        false
      end

      # @return [:settled, :failed]
      def roll_back_lease(uuid)
        @client.rollback_update(uuid, **@call_options)
        :settled
      rescue *FATAL_ERRORS
        raise
      rescue Error
        :failed
      end

      # Returns the lease's uuid and forgets the lease. If a later step fails, reconciliation settles the
      # lease.
      def take_lease
        @lease.uuid.tap { @lease = nil }
      end

      def during_call(request)
        calling = call_in_thread(request)
        yield calling
        calling.join
      ensure
        end_call(calling)
      end

      # Waits briefly for a call that an interruption left open. The call's error must not replace the
      # interruption's.
      def end_call(calling)
        calling&.join(GRACE_SECONDS) || calling&.kill
      rescue StandardError
        nil
      end

      # Starts the call in a thread. The thread only calls the server and takes no database connection. It needs
      # no Rails executor of its own, because it ends before the calling thread's executor does. `join` raises
      # the thread's error.
      def call_in_thread(request)
        Thread.new do
          Thread.current.report_on_exception = false
          request.call
        end
      end
    end
  end
end
