# frozen_string_literal: true

module Leasehold
  class Locks
    # One acquire of several locks, which are granted together (K14). Each lock has an ask of its own.
    class GroupAcquisition < Ask
      # @param session [Session]
      # @param wanted [Array<Hash>] for each lock the part of the request that names it, and says how the ask shares it
      def initialize(session, wanted)
        super(session, wanted.size)
        @wanted = wanted
      end

      # @param wait [Numeric] seconds to wait for all locks at most; 0 for now or never
      # @raise [Error]
      # @return [Array<Object>, nil] a message with the `fence` and the `slot` of each grant, in the order of the locks;
      #   nil if one or more locks did not become free in time
      def run(wait)
        ends_at = now + Messages.seconds(wait)
        deciding { wait_for(ends_at) }
      rescue Error::AskReused
        # The stream was broken for so long that asks have left. The others leave, and all ask anew.
        leave
        renew_ask_ids(@wanted.size)
        run([ends_at - now, 0].max)
      end

      private

      def wait_for(ends_at)
        # An acquire that does not wait is repeated too if no answer comes.
        repeated_until = [ends_at, now + ANSWER_SECONDS].max
        # The server refuses a wait of zero if a lock is held, but asks of an earlier stream may have their grants already.
        shortest = 0
        resuming do
          seconds, shortest = [ends_at - now, shortest].max, 1e-6
          resume(seconds, repeated_until)
        end
      end

      # @return [Array<Object>, nil] the grants; nil if nobody has decided the asks
      def resume(seconds, repeated_until)
        read_stream(seconds)
      rescue Error => error
        raise if !unanswered?(error) || now > [repeated_until, @heard_at + RESUME_SECONDS].min
      end

      # @return [Array<Object>, nil] the grants; nil if the stream ended without grants or a refusal
      def read_stream(seconds)
        asks = @ask_ids.zip(@wanted).map { |ask_id, wanted| { ask_id: ask_id, **wanted } }
        request = Messages.acquire_all(@session.id, asks, @held_ask_ids, seconds)
        deadline = [seconds, Calls::MAX_STREAM_SECONDS].min + ANSWER_SECONDS
        # A stream may be silent for long, so the silence counts from its end.
        @calls.stream(:acquire_locks, request, deadline, heard: -> { @heard_at = now }) do |message|
          @heard_at = now
          message.granted.locks.to_a if message.news == :granted
        end
      end
    end
  end
end
