# frozen_string_literal: true

require "timeout"

module Leasehold
  module Transactions
    # Refuses the COMMIT of a transaction in which the write of a row was interrupted.
    #
    # `Timeout.timeout` without an error class interrupts with `throw` (Ruby 3.1, timeout.rb:44).
    # ActiveRecord 6.1 commits a transaction whose block is left by `throw` (activerecord 6.1.7.10,
    # connection_adapters/abstract/transaction.rb:340-351). The row may be written by then while its change
    # is not yet registered, so the COMMIT would leave the row without its claims.
    class InterruptedWrite
      include ActiveRecordCompat::Participant

      MESSAGE = "the save was interrupted: its transaction must be rolled back, run it again"

      class << self
        # Runs the block. If the block is interrupted, registers a participant that refuses the COMMIT of
        # the current transaction.
        def refuse_commit_on_interrupt(connection)
          on_interrupt(-> { ActiveRecordCompat.add_participant(connection, new) }) { yield }
        end

        # Runs the block, and calls `handler` if the block neither returns nor raises: it is left by
        # `throw`, or the thread is killed.
        def on_interrupt(handler)
          finished = false
          result = yield
          finished = true
          result
        rescue Exception
          finished = true
          raise
        ensure
          handler.call unless finished
        end

        # Rolls back the transaction that is about to COMMIT. A thread that is being killed cannot raise an
        # error, so for it the transaction is rolled back here.
        def roll_back(connection)
          raise error_class, MESSAGE unless ActiveRecordCompat.thread_killed?

          ActiveRecordCompat.roll_back_committing(connection)
        end

        # @raise [Timeout::Error] if the write of one of the transaction's rows was interrupted
        def check(transaction)
          raise error_class, MESSAGE if ActiveRecordCompat.participants(transaction, self).any?
        end

        # Returns the class of error to raise or report for the interrupt.
        def error_class
          ActiveRecordCompat.thread_killed? ? Interrupt : Timeout::Error
        end
      end
    end
  end
end
