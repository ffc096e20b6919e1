# frozen_string_literal: true

module Leasehold
  class Client
    # Limits begins, so that they do not pile up if the server does not answer:
    #
    # - at most `limit` begins are in flight
    # - after `failures` consecutive begins without an answer the circuit opens, and no begin is
    #   sent for `open_seconds`
    # - then a single begin is sent as a probe, and its outcome closes the circuit or opens it again
    #
    # Commits and rollbacks do not pass the breaker: they free claims that others wait for.
    class CircuitBreaker
      def initialize(limit:, failures:, open_seconds:)
        @limit = limit
        @failures = failures
        @open_seconds = open_seconds
        @lock = Mutex.new
        @in_flight = 0
        @failed = 0
        @open_until = nil
        @probe = nil
      end

      # Runs the block, unless the circuit is open or too many begins are in flight.
      #
      # @raise [Error::Overloaded, Error::CircuitOpen] if the block was not run
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
          release(ticket, outcome)
        end
      end

      private

      def admit
        @lock.synchronize do
          refuse_while_open
          refuse_over_limit
          @in_flight += 1
          Object.new.tap { |ticket| @probe = ticket if @open_until }
        end
      end

      def release(ticket, outcome)
        @lock.synchronize do
          @in_flight -= 1
          probed = @probe.equal?(ticket)
          @probe = nil if probed
          # While the circuit is open, only the probe's outcome counts. All other begins that end now were
          # sent before the circuit opened.
          record_outcome(outcome) if probed || !@open_until
        end
      end

      def record_outcome(outcome)
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

        raise CircuitBreaker.error_for(
          Error::CircuitOpen, "CIRCUIT_OPEN", "the claims server did not answer the last begins: try again later",
          [remaining, 0.1].max
        )
      end

      def refuse_over_limit
        return if @in_flight < @limit

        raise CircuitBreaker.error_for(
          Error::Overloaded, "OVERLOADED", "this process has #{@in_flight} begins in flight, its maximum: try again", 0.1
        )
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def self.error_for(error, code, message, retry_after_seconds)
        error.new(message, code: code, retry_after_seconds: retry_after_seconds)
      end
    end
  end
end
