# frozen_string_literal: true

module Leasehold
  module Transactions
    # Tells the database's own transaction from savepoints, by the number of open transactions.
    module Nesting
      class << self
        # Returns true if the connection's current transaction is the database's own, not a savepoint.
        def outermost?(connection)
          ActiveRecordCompat.open_transactions(connection) <= wrapping_transactions + 1
        end

        # Returns true if the connection has no open transaction, or if there is no connection.
        def none_open?(connection)
          ActiveRecordCompat.open_transactions(connection) <= wrapping_transactions
        end

        private

        # Returns the number of transactions that a test framework opens around each example and never
        # commits. The savepoint inside then stands for the database's own transaction.
        def wrapping_transactions
          Leasehold.configuration.transactional_tests ? 1 : 0
        end
      end
    end
  end
end
