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

      # Raised if the database does not show how the transaction ended.
      class UnknownOutcome < Error
        def initialize
          super("the database does not tell how the transaction ended: reconciliation settles its lease")
        end
      end

      # Refuses the COMMIT of a transaction that cannot be committed: PostgreSQL would answer with ROLLBACK, or
      # has ended the transaction already. ActiveRecord would take both for a COMMIT, and the transaction's
      # leases would be committed.
      #
      # @raise [ActiveRecord::StatementInvalid]
      def self.check_alive(transaction)
        return if ActiveRecordCompat.participants(transaction, self).empty?

        check_open(transaction)
        return unless ActiveRecordCompat.aborted?(transaction.connection)

        raise ActiveRecord::StatementInvalid, "a statement of the transaction failed: let its error leave the transaction, run it again"
      end

      # @param transaction [ActiveRecord::ConnectionAdapters::Transaction] one that has written rows
      # @raise [ActiveRecord::StatementInvalid] if the database has ended the transaction
      def self.check_open(transaction)
        return unless ActiveRecordCompat.ended?(transaction.connection)

        raise ActiveRecord::StatementInvalid,
              "the transaction ended before its COMMIT, by raw SQL or with its connection: leave its end to ActiveRecord, run it again"
      end

      # @return [NetEffect] the creates and destroys of the lease
      attr_reader :effect

      # @param effect [NetEffect] the creates and destroys of the lease
      # @param backend_pid [Integer] the database session in which the transaction runs
      def initialize(connection, uuid, effect, backend_pid, client: Leasehold.client)
        @uuid = uuid
        @effect = effect
        @backend_pid = backend_pid
        @client = client
        @connection = connection
        @table = LeaseTable.new(connection)
      end

      # ActiveRecord also calls this method when a savepoint inside a transaction with `joinable: false` is
      # released. The database has committed nothing then, so the settlement joins that transaction as a
      # participant.
      def committed!(**)
        return ActiveRecordCompat.add_first_participant(@connection, self) unless Nesting.none_open?(@connection)

        settling(:commit) { commit }
      end

      # The lease's row is the only proof of the transaction's outcome (R02). ActiveRecord may call this method
      # before it has sent ROLLBACK, or after an interruption of a COMMIT that PostgreSQL has completed.
      def rolledback!(**)
        settling(:rollback) { settle_by(row_status) }
      end

      # Leaves the lease to reconciliation. The lease's row is not read, because the COMMIT may still be in
      # progress.
      def commit_lost
        settling(:rollback) { raise UnknownOutcome }
      end

      private

      # Reads the status of the lease's row. If ActiveRecord reports a rollback without having sent ROLLBACK,
      # the transaction is still open and sees its own row. Then the transaction is rolled back before the row
      # is read again, unless an outer transaction is open.
      def row_status
        status = @table.row_status(@uuid)
        return status unless status&.written && status.in_transaction && @connection.open_transactions.zero?

        ActiveRecordCompat.roll_back_open(@connection)
        @table.row_status(@uuid)
      end

      # Settles the lease by the status of its row. If the status is nil, PostgreSQL has aborted the
      # transaction, which can then only be rolled back. A missing row proves the rollback only in the session
      # that ran the transaction: in another session the COMMIT may still be in progress.
      #
      # @param status [LeaseTable::RowStatus, nil]
      def settle_by(status)
        return commit if status&.committed?
        raise UnknownOutcome if status && (status.written || status.backend_pid != @backend_pid)

        @client.rollback_update(@uuid)
      end

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
