# frozen_string_literal: true

module Leasehold
  class Locks
    # One acquire of a lock, under one ask. A repeated call keeps its place in the queue.
    class Acquisition < Ask
      # @param session [Session]
      # @param wanted [Hash] the part of each request that names the lock, and says how the ask shares it
      # @param on_wait [Proc, nil] see {Locks#with}
      def initialize(session, wanted, on_wait)
        super(session)
        @wanted = wanted
        @on_wait = on_wait
      end

      # @param wait [Numeric] seconds to wait at most; 0 for now or never
      # @raise [Error]
      # @return [Object, nil] a message with the `fence` and the `slot` of the grant; nil if the lock did not become free
      #   in time
      def run(wait)
        seconds = Messages.seconds(wait)
        deciding { seconds.zero? ? try_acquire : wait_for(seconds) }
      end

      private

      def try_acquire(**options)
        @calls.run(:try_acquire_lock, Messages.try_acquire(@session.id, @ask_ids.first, @wanted), **options)
      end

      # Most locks are free, and a call with one answer costs less than a stream. So the first call does not wait.
      # The ask of a stream that breaks keeps its place for ten seconds.
      def wait_for(wait)
        ends_at = now + wait
        # The server refuses a longer wait, which the first call does not name (K21).
        granted = try_first if wait <= Calls::MAX_STREAM_SECONDS
        granted || resuming { resume(ends_at) }
      end

      # @return [Object, nil] the grant; nil if another ask holds the lock, or if no answer came: the same ask then gets
      #   the grant that this call may have made
      def try_first
        try_acquire(tries: 1)
      rescue Error => error
        raise unless error.is_a?(Error::LockHeld) || unanswered?(error)
      end

      # @return [Object, nil] the grant; nil if nobody has decided the ask
      def resume(ends_at)
        read_stream([ends_at - now, 0].max)
      rescue Error => error
        raise if !unanswered?(error) || now > [ends_at, @heard_at + RESUME_SECONDS].min
      end

      # @return [Object, nil] the grant; nil if the stream ended without a grant or a refusal
      def read_stream(seconds)
        request = Messages.acquire(@session.id, @ask_ids.first, { held_ask_ids: @held_ask_ids, **@wanted }, seconds)
        deadline = [seconds, Calls::MAX_STREAM_SECONDS].min + ANSWER_SECONDS
        # A stream may be silent for long, so the silence counts from its end.
        @calls.stream(:acquire_lock, request, deadline, heard: -> { @heard_at = now }) do |message|
          @heard_at = now
          @on_wait&.call(message.waiting) if message.news == :waiting
          # The server ends the stream itself when it moves the ask to another server.
          message if message.news == :fence
        end
      end
    end
  end
end
