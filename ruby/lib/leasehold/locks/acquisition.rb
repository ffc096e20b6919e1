# frozen_string_literal: true

require "securerandom"

module Leasehold
  class Locks
    # One acquire of a lock, under one ask. All its calls carry the id of the ask, so that a repeated call gets the
    # same grant or keeps its place (K05).
    class Acquisition
      # The pause before an acquire is repeated, after its stream has ended without a grant.
      RESUME_PAUSE_SECONDS = 0.1
      # The time for which a waiting acquire that gets no answer is repeated, before it fails.
      RESUME_SECONDS = 30
      # The time beyond its wait for which a stream is kept: the server's answer needs some.
      ANSWER_SECONDS = 10
      # The longest deadline of a stream, a day, which is also the longest wait that a server allows. gRPC's core has no
      # deadline after 2038 (grpc 1.51.1, src/ruby/ext/grpc/rb_grpc.c:89).
      MAX_STREAM_SECONDS = 86_400
      private_constant :RESUME_PAUSE_SECONDS, :RESUME_SECONDS, :ANSWER_SECONDS, :MAX_STREAM_SECONDS

      # @param session [Session]
      # @param on_wait [Proc, nil] see {Locks#with}
      def initialize(session, path, on_wait)
        @session = session
        @calls = session.calls
        @path = path
        @on_wait = on_wait
        @ask_id = SecureRandom.random_bytes(16)
      end

      # @param wait [Numeric] seconds to wait at most; 0 for now or never
      # @raise [Error]
      # @return [Integer, nil] the fence; nil if the lock did not become free in time
      def run(wait)
        seconds = Messages.seconds(wait)
        decided = false
        fence = seconds.zero? ? try_acquire : wait_for(seconds)
        decided = true
        fence
      rescue Error => error
        decided = !unanswered?(error)
        raise unless error.is_a?(Error::Busy)
      ensure
        leave if decided == false
      end

      private

      def try_acquire
        @calls.run(:try_acquire_lock, Messages.try_acquire(@session.id, @ask_id, @path)).fence
      end

      # A stream that breaks or moves is opened again under the same ask, which keeps its place for ten seconds.
      def wait_for(wait)
        ends_at = now + wait
        @heard_at = now
        loop do
          fence = resume(ends_at)
          return fence if fence

          @session.check!
          sleep(RESUME_PAUSE_SECONDS)
        end
      end

      # @return [Integer, nil] the fence; nil if nobody has decided the ask
      def resume(ends_at)
        read_stream([ends_at - now, 0].max)
      rescue Error => error
        raise if !unanswered?(error) || now > [ends_at, @heard_at + RESUME_SECONDS].min
      end

      # @return [Integer, nil] the fence; nil if the stream ended without a grant or a refusal
      def read_stream(seconds)
        request = Messages.acquire(@session.id, @ask_id, @path, seconds)
        @calls.stream(:acquire_lock, request, [seconds, MAX_STREAM_SECONDS].min + ANSWER_SECONDS) do |message|
          @heard_at = now
          @on_wait&.call(message.waiting) if message.news == :waiting
          # The server ends the stream itself when it moves the ask to another server.
          message.fence if message.news == :fence
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
