# frozen_string_literal: true

module Leasehold
  module Transactions
    # Determines which of the open transactions a save belongs to.
    #
    # A save joins the current transaction if that is joinable. Otherwise the save opens a transaction of its
    # own: the database's, or a savepoint directly inside of a transaction with `joinable: false`.
    # ActiveRecord runs `after_commit` at the end of both.
    module Nesting
      class << self
        # Returns true if a save would join the connection's innermost transaction: one is open, and it is
        # joinable.
        def joining?(connection)
          ActiveRecordCompat.transactions(connection).last&.joinable? || false
        end

        # Returns true if the connection has no open transaction, or if there is no connection.
        #
        # In transactional tests, transactions with `joinable: false` at the bottom do not count: the test
        # framework opens one for each example, and another for each `before_all` (test-prof 1.4,
        # lib/test_prof/before_all/adapters/active_record.rb), and never commits them.
        def none_open?(connection)
          transactions = ActiveRecordCompat.transactions(connection)
          Leasehold.configuration.transactional_tests ? transactions.none?(&:joinable?) : transactions.empty?
        end
      end
    end
  end
end
