# frozen_string_literal: true

module Leasehold
  class Locks
    # The standing of a lock or a batch of requests, which this process holds under its session.
    module Holding
      # @return [Symbol] `:safe`; `:jeopardy` if the server has not answered for the session's duration: pause, until
      #   an answer makes it safe again; `:lost` if the session is lost, or the lock is released or taken by an operator,
      #   or the batch is settled
      def standing
        @session.holds?(self) && !@session.taken?(self) ? @session.standing : :lost
      end

      # Returns false once the lock is released or lost, or the batch is settled or lost.
      def held?
        standing != :lost
      end

      # @return [Float] seconds until the session is lost, if no renewal succeeds from now on; 0 once {#held?} is false
      def remaining
        held? ? @session.remaining : 0.0
      end

      # Calls the block in a thread of its own when the session gets into jeopardy, each time. The block is forgotten
      # with the release of the lock, or the settle of the batch.
      #
      # @return [self]
      def on_jeopardy(&block)
        listen(:jeopardy, block)
      end

      # Calls the block in a thread of its own when the lock or the batch is lost, because its session is lost or an
      # operator has taken it; at once if it is lost already. The block is forgotten with the release or the settle. Let
      # the block end or interrupt the work: another process may do it.
      #
      # @return [self]
      def on_lost(&block)
        listen(:lost, block)
      end

      private

      def listen(standing, block)
        @session.listeners.add(self, standing, block)
        self
      end
    end
  end
end
