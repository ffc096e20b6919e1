# frozen_string_literal: true

module Leasehold
  # Requests of one key that this process has taken as one: a create, or updates in their order. The process holds them
  # until it settles them, or until its session is lost. Then they are another's, and the work may run twice.
  #
  # {Queues#work} settles a batch with the end of the block, unless the block itself has.
  class Batch
    include Locks::Holding

    # @return [String] the queue
    attr_reader :queue
    # @return [String] the key of the resource that the requests are about
    attr_reader :key
    # @return [Symbol] `:create` or `:update`
    attr_reader :kind
    # @return [Array<TakenRequest>] at least one
    attr_reader :requests
    # @return [String, nil] the note that an earlier worker of these requests has left (Q20)
    attr_reader :progress
    # @return [Integer] the fence of the hold, greater than that of every earlier one
    attr_reader :fence

    # @api private
    # @param message [Contract::Leasehold::Queues::V1::Batch]
    def initialize(session, queue, message)
      @session = session
      @queue = queue
      @key = message.key
      @kind = Queues::Messages.kind(message.kind)
      @requests = Queues::Messages.taken(message.requests)
      @progress = message.progress if message.has_progress?
      @fence = message.fence
      @session.hold(self)
    end

    # Settles the requests as complete. All settles repeat their call until the server answers or the session is lost,
    # and do nothing if the batch is settled already.
    #
    # @raise [Error::LockLost] if the batch was lost before: the requests are another's by now
    # @return [Boolean] false if the batch is settled already
    def complete
      settle(:completed)
    end

    # Completes the requests as part of the transaction that this thread has open on a database with an outbox: only if it
    # commits (Q14). The server is told at the end of the block, and by the relay if this process dies before. If the session
    # ends before that, another worker gets the requests. Its call of {#undone!} leaves them out, because they are done.
    #
    # If the transaction is rolled back, the batch fails at the end of the block, even without an error: its work is undone. So
    # it does if the connection is lost during the COMMIT; if that has happened after all, {#undone!} tells so.
    #
    # @param database [Class] a class of the database
    # @raise [Error::LockLost] see {#complete}
    # @raise [Error::Misconfigured] if there is no transaction or no outbox
    # @return [self]
    def complete!(database = ActiveRecord::Base)
      check!
      outbox = Outbox.new(database)
      outbox.complete(@session.id, queue, key, fence, requests.map(&:id))
      @in_transaction = true
      outbox.on_commit { @completed = true }
      self
    end

    # Returns the requests whose work no former worker has completed by {#complete!}. Called first in the transaction of the work,
    # it has this work done exactly once: the guard waits for the COMMIT of a former worker, or refuses that.
    #
    # @param database [Class] a class of the database
    # @param resource [String] the name by which the guard knows the batch's key
    # @raise [GuardRefused] if the transaction can't commit any more
    # @raise [Error::LockLost] see {#complete}
    # @raise [Error::Misconfigured] if there is no transaction, no outbox or no guard
    # @return [Array<TakenRequest>]
    def undone!(database = ActiveRecord::Base, resource: "#{queue}/#{key}")
      check!
      Guard.new(database).call(resource, fence, remaining)
      done = Outbox.new(database).done(queue, key, requests.map(&:id))
      requests.reject { |request| done.include?(request.id) }
    end

    # Settles the requests as failed. Each is tried again in its place, or ends in error after its last attempt (Q13).
    #
    # @param retry_after [Numeric, nil] seconds until the next attempt; nil for a time that the server chooses: a second,
    #   and twice as long after each attempt, up to five minutes
    # @raise [Error::LockLost] see {#complete}
    # @return [Boolean] false if the batch is settled already
    def fail(retry_after: nil)
      settle(:failed, retry_after)
    end

    # Gives the requests back. Another worker gets them, and the attempt does not count (Q11).
    #
    # @raise [Error::LockLost] see {#complete}
    # @return [Boolean] false if the batch is settled already
    def give_back
      settle(:given_back)
    end

    # Notes the progress of the work. The next worker gets it, should this one fail or die (Q20).
    #
    # @param progress [String] at most 2,048 bytes, which replace the note before
    # @raise [Error::LockLost] see {#complete}
    # @return [self]
    def note_progress(progress)
      check!
      @session.calls.run(:note_progress, Queues::Messages.note_progress(@session.id, queue, key, fence, progress))
      self
    end

    # @raise [Error::SessionLost] if the batch is settled, or its session is lost: stop the work
    # @raise [Error::Forked] in a process that was forked from the worker
    # @return [self]
    def check!
      @session.check!
      return self if held?

      raise Error::SessionLost.new("the batch is settled already: stop the work on it", code: "SESSION_LOST")
    end

    # Runs the block, and settles the batch after it unless the block has. Gives it back if the thread is killed or the
    # process is to end.
    #
    # No interrupt comes during the settle, whose time is bounded by the session's.
    #
    # @api private
    # @return [Object] the block's result
    def use
      @session.hold(self)
      failure = nil
      Thread.handle_interrupt(Object => :never) do
        Thread.handle_interrupt(Object => :immediate) { yield self }
      rescue Exception => failure # rubocop:disable Lint/RescueException
        raise
      ensure
        end_use(failure)
      end
    end

    # Gives the batch back, unless it is settled or lost.
    #
    # @api private
    # @return [void]
    def abandon
      settle_quietly(@completed ? :completed : :given_back)
    end

    # Returns a text without the key and the bodies (Q22).
    def inspect
      "#<#{self.class} of #{queue}, #{requests.size} requests, fence #{fence}>"
    end

    private

    # A killed thread comes here without an exception (Thread#kill).
    def end_use(failure)
      return unless @session.holds?(self)

      return settle_quietly(:completed) if @completed

      stopped = Thread.current.status == "aborting" || failure.is_a?(SystemExit) || failure.is_a?(SignalException)
      return settle_quietly(:given_back) if stopped

      return settle_quietly(:failed) if failure

      # A completion without its COMMIT: the block has left a transaction by `ActiveRecord::Rollback`, or has rescued an error.
      settle(@in_transaction ? :failed : :completed)
    end

    # The block's own exception must reach the caller, so no other is raised.
    def settle_quietly(outcome)
      settle(outcome)
    rescue Error
      nil
    end

    def settle(outcome, retry_after = nil)
      return false unless @session.own? && @session.holds?(self)

      @session.insist(:settle, Queues::Messages.settle(@session.id, queue, key, fence, outcome, retry_after))
      @session.drop(self)
      true
    rescue Error::LockLost
      @session.drop(self)
      raise
    end
  end
end
