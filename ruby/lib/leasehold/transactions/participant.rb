# frozen_string_literal: true

module Leasehold
  module Transactions
    # The interface of an object that joins a transaction the way a saved model does: ActiveRecord keeps it
    # in the transaction's `records` and notifies it of the transaction's end.
    #
    # ActiveRecord does the bookkeeping of savepoints (activerecord 6.1.7.10,
    # connection_adapters/abstract/transaction.rb):
    #
    # - a released savepoint hands its participants to the transaction around it (line 158)
    # - a savepoint that is rolled back notifies its participants of the rollback and drops them (line 126)
    module Participant
      # Registers a participant with the connection's current transaction, before all others. The
      # participant is then notified before models run their `after_commit` and `after_rollback` callbacks.
      #
      # The transaction must have a participant already: `records` is nil without one
      # (activerecord 6.1.7.10, connection_adapters/abstract/transaction.rb:92).
      def self.register_first(connection, participant)
        connection.current_transaction.records.unshift(participant)
      end

      # Returns true, so that ActiveRecord runs the callbacks below (activerecord 6.1.7.10,
      # connection_adapters/abstract/transaction.rb:152).
      def trigger_transactional_callbacks?
        true
      end

      # Runs immediately before COMMIT, or before a savepoint directly inside a `joinable: false`
      # transaction is released (activerecord 6.1.7.10, connection_adapters/abstract/transaction.rb:235).
      def before_committed!; end

      # Runs after COMMIT, or after the release of such a savepoint.
      def committed!(**); end

      # Runs after ROLLBACK, also of a savepoint.
      def rolledback!(**); end
    end
  end
end
