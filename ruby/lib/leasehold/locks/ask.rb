# frozen_string_literal: true

require "securerandom"

module Leasehold
  class Locks
    # One ask for a lock. All its calls carry the id of the ask, so that a repeated call gets the same grant (K05).
    class Ask
      # The pause before a call is repeated, after its stream has ended without a grant.
      RESUME_PAUSE_SECONDS = 0.1
      # The time for which a call that waits and gets no answer is repeated, before it fails.
      RESUME_SECONDS = 30
      # The longest deadline of a stream, a day, which is also the longest wait that a server allows. gRPC's core has no
      # deadline after 2038 (grpc 1.51.1, src/ruby/ext/grpc/rb_grpc.c:89).
      MAX_STREAM_SECONDS = 86_400
      private_constant :RESUME_PAUSE_SECONDS, :RESUME_SECONDS, :MAX_STREAM_SECONDS

      # @param session [Session]
      def initialize(session)
        @session = session
        @calls = session.calls
        @ask_id = SecureRandom.random_bytes(16)
      end

      private

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
        @session.finish(:leave_lock, Messages.leave(@session.id, @ask_id)) if @session.own?
      rescue Error
        nil
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
