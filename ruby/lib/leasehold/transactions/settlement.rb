# frozen_string_literal: true

module Leasehold
  module Transactions
    # Settles a lease as its transaction ends. Whatever fails here is left to reconciliation.
    class Settlement
      include Record

      # @param session [Integer] of the database, in which the lease was begun
      def initialize(connection, uuid, session, client: Leasehold.client)
        @uuid = uuid
        @session = session
        @client = client
        @table = LeaseTable.new(connection)
      end

      # ActiveRecord tells so also where a callback of a model has failed, since the transaction is committed all the same.
      def committed!(**)
        leave_to_reconciliation_what_fails(:commit) { commit }
      end

      # The lease's row is the only proof of what became of the transaction (R02). That the row is missing proves that it
      # was rolled back only where the session is still the one that was to commit: another may look too early.
      def rolledback!(**)
        leave_to_reconciliation_what_fails(:rollback) do
          written, session = @table.look(@uuid)
          next commit if written

          @client.rollback_update(@uuid) if session == @session
        end
      end

      private

      def commit
        @client.commit_update(@uuid)
        @table.delete(@uuid)
      end

      def leave_to_reconciliation_what_fails(wanted)
        yield
      rescue Error, ActiveRecord::ActiveRecordError => error
        Events.publish(:unsettled, lease: @uuid, wanted: wanted, error: error.class.name, message: error.message)
      end
    end
  end
end
