# frozen_string_literal: true

module Leasehold
  class Locks
    # The time since a session's last renewal was sent, and what follows from it. The engine has the rule
    # ({Native::Deadlines}), so that it is the same in every language (K11).
    #
    # Each answer is computed from the clock. So it is true even if no thread of this process could run for a while:
    # because the process was stopped, or another thread kept Ruby's lock.
    class Silence
      # @param sent_at [Integer] the time at which the call was sent that opened the session
      def initialize(duration_micros, grace_micros, sent_at)
        @deadlines = Native::Deadlines.new(duration_micros, grace_micros)
        @sent_at = sent_at
        @ended = false
      end

      # Notes a renewal that the server answered.
      #
      # @param sent_at [Integer] the time at which the call was sent
      # @return [void]
      def renewed(sent_at)
        @sent_at = sent_at unless standing == :lost
      end

      # Ends the session for good.
      #
      # @return [void]
      def end
        @ended = true
      end

      # Returns the standing. Once it was `:lost`, it stays so: a thread that was told may have begun to clean up, and
      # an answer can come between two calls (K02).
      #
      # @return [Symbol] `:safe`, `:jeopardy` or `:lost`
      def standing
        return :lost if @ended

        @deadlines.standing(micros).tap { |standing| @ended = true if standing == :lost }
      end

      # @return [Float] seconds until the session is lost, if no renewal succeeds from now on; 0 once it is lost
      def remaining
        standing == :lost ? 0.0 : seconds_until(@deadlines.held_micros)
      end

      # @return [Float] seconds until the next renewal is due
      def renewal_in
        seconds_until(@deadlines.renewal_micros)
      end

      # @return [Float] the time from a renewal to the next one
      def renewal_seconds
        @deadlines.renewal_micros / 1e6
      end

      # @return [Float, nil] seconds until the standing changes without a renewal; nil if it can't change
      def changes_in
        case standing
        when :safe then seconds_until(@deadlines.safe_micros)
        when :jeopardy then remaining
        end
      end

      private

      def micros
        [Clock.micros - @sent_at, 0].max
      end

      def seconds_until(deadline)
        [deadline - micros, 0].max / 1e6
      end
    end
  end
end
