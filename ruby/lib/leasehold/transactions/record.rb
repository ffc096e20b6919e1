# frozen_string_literal: true

module Leasehold
  module Transactions
    # What ActiveRecord keeps with a transaction and tells of its end, as it does with models. Transactions that are
    # released into another hand theirs on to it, and what a savepoint rolls back is dropped: ActiveRecord sees to both.
    module Record
      # Where a test runs in a transaction that is never committed, the one within takes the place of the real one.
      def self.around
        Leasehold.configuration.transactional_tests ? 1 : 0
      end

      # Whether the connection's present transaction is the database's own, not a savepoint.
      def self.outermost?(connection)
        connection.open_transactions <= around + 1
      end

      # Whether the connection is in no transaction.
      def self.outside?(connection)
        connection.open_transactions <= around
      end

      # Keeps with the connection's present transaction what is to be told of its end before all else is, callbacks of models
      # too. There has to be something with it already.
      def self.add_first(connection, record)
        connection.current_transaction.records.unshift(record)
      end

      # Asked by ActiveRecord of what it keeps.
      def trigger_transactional_callbacks?
        true
      end

      # Told right before COMMIT, or the release of a savepoint in an unjoinable transaction.
      def before_committed!; end

      # Told after it.
      def committed!(**); end

      # Told after a rollback.
      def rolledback!(**); end
    end
  end
end
