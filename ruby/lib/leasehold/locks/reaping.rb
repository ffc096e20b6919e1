# frozen_string_literal: true

module Leasehold
  class Locks
    # One wait for an orphaned lock, under one ask (K17).
    class Reaping < Ask
      # The shortest wait. The server answers only when it has an orphaned lock, and needs some time to look.
      SHORTEST_SECONDS = 1
      # The result of a wait that is over.
      NONE = Object.new.freeze
      private_constant :SHORTEST_SECONDS, :NONE
      # The pause of a loop after a wait that has failed.
      PAUSE_SECONDS = 1

      # Returns true if a later wait may succeed: the server did not answer, or the session was lost.
      def self.passing?(error)
        error.is_a?(Error) && (error.temporary? || error.is_a?(Error::LockLost))
      end

      # @param session [Session]
      # @param namespace [String]
      def initialize(session, namespace)
        super(session)
        @request = Messages.reap(session.id, @ask_ids.first, namespace)
      end

      # @param wait [Numeric, nil] seconds to wait at most; nil for no end
      # @raise [Error]
      # @return [Contract::Leasehold::Locks::V1::Orphan, nil] nil if none came in time
      def run(wait)
        ends_at = now + [Messages.seconds(wait), SHORTEST_SECONDS].max if wait
        deciding do
          orphan = resuming { resume(ends_at) }
          # A lock may have come at the moment at which the wait was over, so the ask leaves.
          orphan unless orphan.equal?(NONE)
        end
      end

      private

      # @return [Object, nil] nil if the call is to be repeated
      def resume(ends_at)
        read_stream(ends_at) || (NONE if over?(ends_at))
      rescue Error => error
        raise if !unanswered?(error) || now > @heard_at + RESUME_SECONDS
        return unless over?(ends_at)
        raise unless error.is_a?(Error::DeadlineExceeded)

        NONE
      end

      def over?(ends_at)
        ends_at && now >= ends_at
      end

      # @return [Contract::Leasehold::Locks::V1::Orphan, nil] nil if the stream ended without a lock or a refusal
      def read_stream(ends_at)
        seconds = [[(ends_at || Float::INFINITY) - now, 0].max, Calls::MAX_STREAM_SECONDS].min
        # A stream may be silent for long, so the silence counts from its end.
        @calls.stream(:reap_lock, @request, seconds, heard: -> { @heard_at = now }) do |message|
          message.orphan if message.news == :orphan
        end
      end
    end
  end
end
