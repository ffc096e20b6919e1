# frozen_string_literal: true

module Leasehold
  class Queues
    # Takes the batches of one queue under a session of its own, over a stream that is opened again when it ends.
    class Taking
      # The pauses before a stream is opened again: the first one after a stream that the server had accepted, then twice
      # as long each time.
      FIRST_PAUSE_SECONDS = 0.1
      LONGEST_PAUSE_SECONDS = 3
      private_constant :FIRST_PAUSE_SECONDS, :LONGEST_PAUSE_SECONDS

      # @return [Thread::Queue<Batch>] the batches that were taken, and that no thread works on
      attr_reader :batches

      # @param queue [String]
      # @param calls [Proc] returns the connection of this process
      # @param credit [Integer] the most batches held at a time
      # @param max_requests [Integer] the most requests of a batch
      def initialize(queue, configuration, calls, credit, max_requests)
        @queue = queue
        @configuration = configuration
        @calls = calls
        @limits = [credit, max_requests]
        @batches = Thread::Queue.new
        @known = []
        @pause = FIRST_PAUSE_SECONDS
      end

      # Takes until the thread is killed.
      #
      # @yieldparam error [Error] an error after which the taking goes on
      # @raise [Error] if no later take can succeed
      def run
        loop do
          begin
            read_stream
          rescue Error => error
            pass_over(error)
            yield error
          end
          sleep(@pause * rand(1.0..1.5))
          @pause = [@pause * 2, LONGEST_PAUSE_SECONDS].min
        end
      end

      # Gives back what no thread works on, after {#run} has ended.
      #
      # @return [void]
      def give_back_rest
        # A closed queue is never waited for, should a thread of the worker empty it meanwhile.
        @batches.close
        while (batch = @batches.pop)
          batch.abandon
        end
      end

      # Gives back what the session holds unknown to this process, since it came when the stream was cut. Then ends the
      # session.
      #
      # @return [void]
      def close
        return unless @session&.own?

        give_back_unknown
        @session.close
      end

      private

      def read_stream
        session = live_session
        @known.select! { |batch| session.holds?(batch) }
        request = Messages.take(session.id, @queue, *@limits, @known.map(&:fence))
        heard = -> { @pause = FIRST_PAUSE_SECONDS }
        session.calls.stream(:take, request, Locks::Calls::MAX_STREAM_SECONDS, heard: heard) do |message|
          accept(session, message.batch) if message.news == :batch
          message.news == :moving
        end
      end

      # A stream that was opened again has no batch that this process knows. Should one come twice, it is worked once.
      def accept(session, message)
        return if @known.any? { |batch| batch.fence == message.fence }

        batch = Batch.new(session, @queue, message)
        @known << batch
        @batches << batch
      end

      # Returns the session, or another one if it was lost. What was taken under the lost one is another's.
      #
      # No interrupt comes meanwhile: it would leave a session behind that its thread renews for ever.
      def live_session
        Thread.handle_interrupt(Object => :never) do
          @session = Locks::Session.open(@calls.call, @configuration) unless @session&.usable?
        end
        @session
      end

      def pass_over(error)
        raise error unless Locks::Reaping.passing?(error)

        @session.lose if @session && error.is_a?(Error::LockLost)
      end

      def give_back_unknown
        lanes = @session.calls.run(:list_lanes, Messages.list_taken(@queue, @session.id)).lanes
        lanes.select { |lane| lane.session_id == @session.id }.each do |lane|
          @session.insist(:settle, Messages.settle(@session.id, @queue, lane.key, lane.fence, :given_back))
        end
      rescue Error
        # Without an answer, the end of the session gives the batches back, and their attempts count.
        nil
      end
    end
  end
end
