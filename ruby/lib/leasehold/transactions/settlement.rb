# frozen_string_literal: true

module Leasehold
  module Transactions
    # Settles a lease as its transaction ends. Whatever fails here is left to reconciliation.
    class Settlement
      include Record

      # What a settlement may end with.
      FAILURES = [Error, ActiveRecord::ActiveRecordError].freeze
      private_constant :FAILURES

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

      def leave_to_reconciliation_what_fails(wanted, &settling)
        Interrupted.unless_thrown_out(-> { unsettled(wanted, Interrupted.error, "the settling was interrupted") }, &settling)
      rescue Exception => error
        unsettled(wanted, error.class, error.message)
        # Whatever else has come over the thread is for whoever runs it.
        raise unless FAILURES.any? { |failure| error.is_a?(failure) }
      end

      def unsettled(wanted, error, message)
        Events.publish(:unsettled, lease: @uuid, wanted: wanted, error: error.name, message: message)
      end
    end
  end
end
