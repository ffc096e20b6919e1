# frozen_string_literal: true

module Leasehold
  class Client
    # Keeps begins from piling up: at most `limit` are under way, and after `failures` in a row that got no answer none
    # is sent for `open_seconds`; then one is let through, and what becomes of it decides for the rest.
    #
    # Settling never passes here: it frees what others wait for.
    class CircuitBreaker
      def initialize(limit:, failures:, open_seconds:)
        @limit = limit
        @failures = failures
        @open_seconds = open_seconds
        @lock = Mutex.new
        @under_way = 0
        @failed = 0
        @open_until = nil
        @probe = nil
      end

      # Runs the block, unless too many are under way or too many have failed.
      #
      # @raise [Error::Overloaded, Error::CircuitOpen] the block was not run
      def run
        ticket = admit
        outcome = :interrupted
        begin
          result = yield
          outcome = :answered
          result
        rescue Error::Unavailable, Error::DeadlineExceeded
          outcome = :failed
          raise
        rescue Error
          outcome = :answered
          raise
        ensure
          settle(ticket, outcome)
        end
      end

      private

      def admit
        @lock.synchronize do
          refuse_while_open
          refuse_over_limit
          @under_way += 1
          Object.new.tap { |ticket| @probe = ticket if @open_until }
        end
      end

      def settle(ticket, outcome)
        @lock.synchronize do
          @under_way -= 1
          probed = @probe.equal?(ticket)
          @probe = nil if probed
          # What was sent before the circuit opened has nothing to say about now.
          count(outcome) if probed || !@open_until
        end
      end

      def count(outcome)
        case outcome
        when :answered
          @failed = 0
          @open_until = nil
        when :failed
          @failed += 1
          @open_until = now + @open_seconds if @failed >= @failures
        end
      end

      def refuse_while_open
        return unless @open_until

        remaining = @open_until - now
        return if remaining <= 0 && !@probe

        raise CircuitBreaker.refusal(
          Error::CircuitOpen, "CIRCUIT_OPEN", "the claims server does not answer: try again later", [remaining, 0.1].max
        )
      end

      def refuse_over_limit
        return if @under_way < @limit

        raise CircuitBreaker.refusal(
          Error::Overloaded, "OVERLOADED", "#{@under_way} updates are being begun in this process: try again", 0.1
        )
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def self.refusal(error, code, message, retry_after_seconds)
        error.new(message, code: code, retry_after_seconds: retry_after_seconds)
      end
    end
  end
end
