# frozen_string_literal: true

module Leasehold
  module Transactions
    # Settles a lease when its transaction ends: commits it after COMMIT, rolls it back after ROLLBACK. If a
    # step fails, reconciliation settles the lease later.
    class Settlement
      include ActiveRecordCompat::Participant

      # Errors that leave the lease to reconciliation.
      EXPECTED_ERRORS = [Error, ActiveRecord::ActiveRecordError].freeze
      private_constant :EXPECTED_ERRORS

      # @param backend_pid [Integer] the database session in which the transaction runs
      def initialize(connection, uuid, backend_pid, client: Leasehold.client)
        @uuid = uuid
        @backend_pid = backend_pid
        @client = client
        @table = LeaseTable.new(connection)
      end

      # ActiveRecord also calls this method after a model's `after_commit` callback failed: the transaction
      # is committed regardless (activerecord 6.1.7.10, connection_adapters/abstract/transaction.rb:162).
      def committed!(**)
        settling(:commit) { commit }
      end

      # The lease's row is the only proof of the transaction's outcome (R02). If the connection is lost
      # during COMMIT, ActiveRecord reports a rollback although the transaction may be committed. A missing
      # row proves the rollback only in the session that ran the transaction: in another session the COMMIT
      # may still be in progress.
      def rolledback!(**)
        settling(:rollback) do
          written, backend_pid = @table.row_status(@uuid)
          next commit if written

          @client.rollback_update(@uuid) if backend_pid == @backend_pid
        end
      end

      private

      # The row is deleted last. If the process dies before, reconciliation finds a committed lease with a
      # row and deletes the row.
      def commit
        @client.commit_update(@uuid)
        @table.delete(@uuid)
      end

      def settling(wanted, &block)
        handler = -> { publish_unsettled(wanted, InterruptedWrite.error_class, "the settlement was interrupted") }
        InterruptedWrite.on_interrupt(handler, &block)
      rescue Exception => error
        publish_unsettled(wanted, error.class, error.message)
        # An unexpected error, or one that another thread raised in this one, is for the caller to handle.
        raise unless EXPECTED_ERRORS.any? { |expected| error.is_a?(expected) }
      end

      def publish_unsettled(wanted, error_class, message)
        Events.publish(:unsettled, lease: @uuid, wanted: wanted, error: error_class.name, message: message)
      end
    end
  end
end
