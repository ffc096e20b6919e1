# frozen_string_literal: true

require "securerandom"

module Leasehold
  class Locks
    # One ask for a lock, or several that are decided together. All calls carry the ids of the asks, so that a repeated
    # call gets the same grants (K05).
    class Ask
      # The pause before a call is repeated, after its stream has ended without a grant.
      RESUME_PAUSE_SECONDS = 0.1
      # The time for which a call that waits and gets no answer is repeated, before it fails.
      RESUME_SECONDS = 30
      # The time beyond its wait for which the stream of an acquire is kept: the server's answer needs some.
      ANSWER_SECONDS = 10
      private_constant :RESUME_PAUSE_SECONDS, :RESUME_SECONDS, :ANSWER_SECONDS

      # @return [Array<String>] the id of each ask
      attr_reader :ask_ids

      # @param session [Session]
      # @param count [Integer] the number of asks
      def initialize(session, count = 1)
        @session = session
        @calls = session.calls
        @held_ask_ids = HeldLocks.ask_ids
        renew_ask_ids(count)
      end

      private

      def renew_ask_ids(count)
        @ask_ids = Array.new(count) { SecureRandom.random_bytes(16) }
      end

      # Runs the block. Leaves if it is interrupted, or if nobody has decided the ask at its end.
      #
      # @raise [Error]
      # @return [Object, nil] the block's result; nil if the lock is not free
      def deciding
        decided = false
        result = yield
        decided = !result.nil?
        result
      rescue Error => error
        decided = !unanswered?(error)
        raise unless error.is_a?(Error::Busy)
      ensure
        leave unless decided
      end

      # Runs the block, which reads a stream, until it has a result. A stream that breaks or moves is opened again.
      #
      # @return [Object] the block's true result
      def resuming
        @heard_at = now
        loop do
          result = yield
          return result if result

          @session.check!
          sleep(RESUME_PAUSE_SECONDS)
        end
      end

      # The lock may have been granted to an ask whose caller was interrupted or got no answer (K10).
      def leave
        return unless @session.own?

        answered = true
        @ask_ids.each do |ask_id|
          request = Messages.leave(@session.id, ask_id)
          # After one call without an answer, the caller does not wait for those of the others.
          answered ? answered = leave_one(request) : @session.finish_later(:leave_lock, request)
        end
      end

      def leave_one(request)
        @session.finish(:leave_lock, request)
      rescue Error
        true
      end

      # Returns true if the call may be repeated: nobody has decided it.
      def unanswered?(error)
        error.temporary? && !error.is_a?(Error::Busy)
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
