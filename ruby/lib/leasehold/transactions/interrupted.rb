# frozen_string_literal: true

require "timeout"

module Leasehold
  module Transactions
    # Goes with a transaction in which a row was being written when something came over the thread. `Timeout.timeout` throws,
    # and ActiveRecord commits what is thrown out of: the row may be written, and what it claims was not kept.
    class Interrupted
      include Record

      MESSAGE = "the save was interrupted: its transaction is to be rolled back"

      class << self
        # Runs the block. Where something is thrown out of it, the transaction that is open is refused at its COMMIT.
        def refused_if_thrown_out(connection)
          unless_thrown_out(-> { connection.add_transaction_record(new) }) { yield }
        end

        # Runs the block, and what is to be done where it neither ended nor raised.
        def unless_thrown_out(otherwise)
          ended = false
          result = yield
          ended = true
          result
        rescue Exception
          ended = true
          raise
        ensure
          otherwise.call unless ended
        end

        # Has the transaction rolled back that is on its way to COMMIT, where ActiveRecord rolls back only for what is raised,
        # and would leave it open. A thread that was killed ends without an error, so nothing is raised in it.
        def roll_back(connection)
          raise error, MESSAGE unless killed?

          # ActiveRecord takes the last transaction off its stack yet. With one around, that has to be this one still.
          present = connection.current_transaction if connection.open_transactions > 1
          connection.rollback_transaction(present)
        rescue ActiveRecord::ActiveRecordError
          connection.throw_away!
        end

        # What to raise, or to tell of.
        def error
          killed? ? Interrupt : Timeout::Error
        end

        private

        def killed?
          Thread.current.status == "aborting"
        end
      end

      def before_committed!
        raise Interrupted.error, MESSAGE
      end
    end
  end
end
