# frozen_string_literal: true

require "securerandom"

module Leasehold
  class Relay
    # The turn of one relay of an outbox. A row of the outbox names the relay that works, whether it is one of the gem, of
    # Python or of a server. This relay raises a number in the row; others wait, and take its place once the number stands still.
    #
    # Two relays at once do no harm. Both work on one batch: what one delivers again changes nothing, and each acknowledges only
    # what it has delivered.
    class Turn
      # The seconds after which the relay that works says so again, and those for which another one must have said nothing before
      # this one takes its place: those of a server's relay (server/src/serve/relays/relay.rs).
      BEAT_SECONDS = 3
      SILENCE_SECONDS = 15
      private_constant :BEAT_SECONDS, :SILENCE_SECONDS

      # @param rows [Rows]
      def initialize(rows)
        @rows = rows
        @id = SecureRandom.uuid
      end

      # Returns true if this relay is the one that works, and says so to the others.
      def hold?
        return true if @beat_at && now - @beat_at < BEAT_SECONDS

        asked_at = now
        holds, beats = @rows.hold(@id, silent_beats)
        @beat_at = holds ? asked_at : nil
        @seen = [beats, now] unless @seen&.first == beats
        holds
      end

      # Gives up the turn, so that another relay takes it at once.
      #
      # @return [void]
      def release
        forget
        @rows.release(@id)
      end

      # Observes other relays anew: their number may have been raised while the database was out of reach.
      #
      # @return [void]
      def forget
        @beat_at = @seen = nil
      end

      private

      # @return [Integer, nil] the number of another relay that has been silent for long
      def silent_beats
        beats, since = @seen
        beats if since && now - since >= SILENCE_SECONDS
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
