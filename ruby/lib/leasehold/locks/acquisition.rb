# frozen_string_literal: true

module Leasehold
  class Locks
    # One acquire of a lock, under one ask. A repeated call keeps its place in the queue.
    class Acquisition < Ask
      # The time beyond its wait for which a stream is kept: the server's answer needs some.
      ANSWER_SECONDS = 10
      private_constant :ANSWER_SECONDS

      # @param session [Session]
      # @param on_wait [Proc, nil] see {Locks#with}
      def initialize(session, path, on_wait)
        super(session)
        @path = path
        @on_wait = on_wait
      end

      # @param wait [Numeric] seconds to wait at most; 0 for now or never
      # @raise [Error]
      # @return [Integer, nil] the fence; nil if the lock did not become free in time
      def run(wait)
        seconds = Messages.seconds(wait)
        deciding { seconds.zero? ? try_acquire : wait_for(seconds) }
      end

      private

      def try_acquire
        @calls.run(:try_acquire_lock, Messages.try_acquire(@session.id, @ask_id, @path)).fence
      end

      # The ask of a stream that breaks keeps its place for ten seconds.
      def wait_for(wait)
        ends_at = now + wait
        resuming { resume(ends_at) }
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
        deadline = [seconds, MAX_STREAM_SECONDS].min + ANSWER_SECONDS
        # A stream may be silent for long, so the silence counts from its end.
        @calls.stream(:acquire_lock, request, deadline, heard: -> { @heard_at = now }) do |message|
          @heard_at = now
          @on_wait&.call(message.waiting) if message.news == :waiting
          # The server ends the stream itself when it moves the ask to another server.
          message.fence if message.news == :fence
        end
      end
    end
  end
end
