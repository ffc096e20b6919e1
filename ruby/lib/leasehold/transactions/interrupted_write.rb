# frozen_string_literal: true

require "timeout"

module Leasehold
  module Transactions
    # The write of one row. If the write is interrupted, it joins its transaction as a participant, and
    # {.check} then refuses the COMMIT. The row may be written although its change is not yet registered, so
    # the COMMIT would leave the row without its claims.
    #
    # `Timeout.timeout` without an error class interrupts with `throw` (Ruby 3.1, timeout.rb:44), and from the
    # gem timeout 0.4 on with an error. ActiveRecord 6.1 commits a transaction whose block is left by `throw`
    # (activerecord 6.1.7.10, connection_adapters/abstract/transaction.rb:340-351). In all versions a
    # transaction goes on if its block rescues the error.
    class InterruptedWrite
      include ActiveRecordCompat::Participant

      MESSAGE = "the save was interrupted: its transaction must be rolled back, run it again"

      class << self
        # Runs the block, which writes a row and registers its change.
        #
        # @yieldparam write [InterruptedWrite] on which the block calls {#start} and {#register}
        def watch(connection)
          write = new
          finished = false
          result = yield write
          finished = true
          result
        rescue Exception => error
          finished = !write.interrupted_by?(error)
          raise
        ensure
          ActiveRecordCompat.add_participant(connection, write) if !finished && write.started?
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

      # Records that the statement is about to be sent. Further calls have no effect.
      def start
        @step ||= :started
      end

      # Records that the row is written, and runs the block, which registers the row's change.
      def register
        @step = :written
        yield
        @step = :registered
      end

      # Returns true if the row may be written while its change is not yet registered.
      def started?
        %i[started written].include?(@step)
      end

      # Returns true if the row may be written although the error was raised. ActiveRecord wraps most errors
      # that reach a thread during a statement (activerecord 6.1.7.10,
      # connection_adapters/abstract_adapter.rb:699).
      def interrupted_by?(error)
        return true if @step == :written

        error = error.cause || error if error.is_a?(ActiveRecord::StatementInvalid)
        statement_errors.none? { |expected| error.is_a?(expected) }
      end

      private

      # Returns the classes of errors after which a statement has written no row. ActiveRecord and the driver
      # raise the last four for values that they cannot send (activemodel 6.1.7.10, type/integer.rb:49; pg
      # 1.4.5, ext/pg_connection.c). This is a method and no constant, because `PG` is loaded only with the
      # first connection.
      def statement_errors
        [PG::Error, ActiveRecord::ActiveRecordError, ArgumentError, TypeError, RangeError, EncodingError]
      end
    end
  end
end
