# frozen_string_literal: true

require "leasehold"
require "leasehold/client"
require "leasehold/native"
require "leasehold/proto/leasehold/locks/v1/lock_service_services_pb"
require "leasehold/proto/leasehold/queues/v1/queue_service_services_pb"
require "leasehold/proto/leasehold/sessions/v1/session_service_services_pb"

require_relative "locks/ask"
require_relative "locks/acquisition"
require_relative "locks/calls"
require_relative "locks/clock"
require_relative "locks/connected"
require_relative "locks/conversion"
require_relative "locks/exit_hook"
require_relative "locks/group_acquisition"
require_relative "locks/holding"
require_relative "locks/held_lock"
require_relative "locks/held_locks"
require_relative "locks/listeners"
require_relative "locks/messages"
require_relative "locks/orphan"
require_relative "locks/reaping"
require_relative "locks/session"
require_relative "locks/silence"

module Leasehold
  # Locks that this process acquires and reads. Threads can share the object. All locks of the process are held
  # under one session, which a thread renews until {#close}.
  #
  # The session is opened by the first acquire. A process that was forked has a session of its own: it neither
  # renews nor releases the locks of its parent. If the process ends, the session is closed.
  #
  # @example Work under a lock, and write only while it is held
  #   Leasehold.locks.with("user.update", "7", wait: 2) do |held|
  #     User.transaction do
  #       held.guard!
  #       User.find(7).update!(name: "Carla")
  #     end
  #   end
  class Locks
    include Connected

    # Runs the block while this process holds a lock. Releases the lock when the block has ended, as failed if the
    # block raises. Join the threads and processes that the block starts before it ends.
    #
    # An acquire in the block tells the server which locks the blocks of its thread hold. The server refuses a wait that
    # would never end, because it is for a lock whose holder waits for one of these (K15). Locks without a block, and blocks
    # of other threads and fibers, do not count.
    #
    # @param wait [Numeric] seconds to wait for the lock at most; 0 for now or never (K01)
    # @param on_wait [Proc, nil] called with the most asks that are served before this one, while it waits
    # @param shared [Boolean] true to hold the lock together with all others who share it, as readers do. Who wants the
    #   lock alone waits for them, and later ones wait behind (K13)
    # @param permits [Integer, nil] to hold one of this many permits of the lock, at most 256. All who use the lock must
    #   name the same number: an acquire with another one waits until no permit is held (K13)
    # @yieldparam held [HeldLock]
    # @raise [Error::LockHeld] if the lock did not become free in time; the block was not run
    # @raise [Error::LockCircle] if the wait would never end: end the outer blocks, and begin again
    # @raise [Error::LockLost] if the lock was lost before the block had ended
    # @return [Object] the block's result
    def with(namespace, key, wait: 0, on_wait: nil, shared: false, permits: nil, &block)
      # Interrupts come only while a call waits for its answer, so none leaves a lock behind that nobody releases.
      Thread.handle_interrupt(Object => :on_blocking) do
        held = acquire(namespace, key, wait: wait, on_wait: on_wait, shared: shared, permits: permits)
        return held.use(&block) if held
      end
      raise Error::LockHeld.new("the lock did not become free in time: try again, or pass a longer `wait`", code: "LOCK_HELD")
    end

    # Runs the block while this process holds several locks: it gets all of them or none (K14). Releases all when the
    # block has ended, as failed if the block raises.
    #
    # While the call waits for one lock, those that it has already are kept for it. Callers that name the same locks never
    # wait for each other in a circle, in whatever order they name them.
    #
    # @example
    #   Leasehold.locks.with_all(["account", 7], ["rates", "today", shared: true], wait: 2) do |account, rates|
    #     account.fence
    #   end
    # @param locks [Array<Array>] each a namespace and a key, and `shared:` or `permits:` of {#with}; at most 16
    # @param wait [Numeric] seconds to wait for all locks at most; 0 for now or never
    # @yieldparam held [Array<HeldLock>] one argument for each lock, in their order
    # @raise [Error::LockHeld] if one or more locks did not become free in time; the block was not run
    # @raise [Error::LockCircle] see {#with}
    # @raise [Error::LockLost] if a lock was lost before the block had ended
    # @return [Object] the block's result
    def with_all(*locks, wait: 0, &block)
      Thread.handle_interrupt(Object => :on_blocking) do
        held = acquire_all(*locks, wait: wait)
        return HeldLock.use_all(held, &block) if held
      end
      raise Error::LockHeld.new("the locks did not become free in time: try again, or pass a longer `wait`", code: "LOCK_HELD")
    end

    # Acquires several locks together. The caller must call {HeldLock#release} of each.
    #
    # @param locks [Array<Array>] see {#with_all}
    # @param wait [Numeric] see {#with_all}
    # @raise [Error::LockCircle] see {#with}
    # @raise [Error::Invalid, Error::Denied, Error::Unavailable]
    # @return [Array<HeldLock>, nil] the locks in their order; nil if one or more did not become free in time
    def acquire_all(*locks, wait: 0)
      wanted = locks.map { |lock| Messages.wanted_of(lock) }
      under_session do |session|
        acquisition = GroupAcquisition.new(session, wanted)
        granted = acquisition.run(wait)
        granted&.zip(wanted, acquisition.ask_ids)&.map { |grant, lock, ask_id| hold(session, lock, grant, ask_id) }
      end
    end

    # Acquires a lock, and waits for it. The caller must call {HeldLock#release}.
    #
    # @param wait [Numeric] see {#with}
    # @param on_wait [Proc, nil] see {#with}
    # @param shared [Boolean] see {#with}
    # @param permits [Integer, nil] see {#with}
    # @raise [Error::LockCircle] see {#with}
    # @raise [Error::Invalid, Error::Denied, Error::Unavailable]
    # @return [HeldLock, nil] nil if the lock did not become free in time
    def acquire(namespace, key, wait: 0, on_wait: nil, shared: false, permits: nil)
      wanted = Messages.wanted(namespace, key, shared: shared, permits: permits)
      under_session do |session|
        acquisition = Acquisition.new(session, wanted, on_wait)
        granted = acquisition.run(wait)
        granted && hold(session, wanted, granted, acquisition.ask_ids.first)
      end
    end

    # Acquires a lock if it is free.
    #
    # @param shared [Boolean] see {#with}
    # @param permits [Integer, nil] see {#with}
    # @return [HeldLock, nil] nil if it is not free
    def try_acquire(namespace, key, shared: false, permits: nil)
      acquire(namespace, key, shared: shared, permits: permits)
    end

    # Waits for a lock whose holder has died, in a namespace that is reaped, and runs the block while this process holds
    # the lock in order to clean up (K17). If the block returns, the lock passes on. If it raises, the lock is orphaned
    # again, and the cleanup is offered again after a pause.
    #
    # @param namespace [String] its locks, and those of the namespaces in it
    # @param wait [Numeric, nil] seconds to wait at most, at least one; nil for no end
    # @yieldparam orphan [Orphan]
    # @raise [Error::Invalid, Error::Denied, Error::Unavailable]
    # @raise [Error::LockLost] if the lock was lost before the block had ended
    # @return [Object, nil] the block's result; nil if no lock came in time
    def reap(namespace, wait: nil, &block)
      Thread.handle_interrupt(Object => :on_blocking) do
        orphan = under_session do |session|
          reaping = Reaping.new(session, namespace)
          found = reaping.run(wait)
          found && Orphan.new(session, found, reaping.ask_ids.first)
        end
        return orphan&.use(&block)
      end
    end

    # Cleans up after one lock after another, as {#reap} does. The work of a process of its own, or of a job.
    #
    # An error of the block leaves the lock orphaned. Its class is logged, as is that of an error that interrupts the wait
    # for a while, and the loop goes on.
    #
    # @param wait [Numeric, nil] the seconds without an orphaned lock after which the loop ends, at least one; nil for a
    #   loop that only an exception, a signal or `break` ends
    # @param on_error [Proc, nil] called with each error, and with the {Orphan}; nil instead of it for an error of the wait
    # @yieldparam orphan [Orphan]
    # @raise [Error] if no later wait can succeed
    # @return [nil]
    def reap_each(namespace, wait: nil, on_error: nil)
      loop do
        orphan = nil
        begin
          reap(namespace, wait: wait) { |held| yield(orphan = held) }
          return if wait && orphan.nil?
        rescue StandardError => error
          raise unless orphan || Reaping.passing?(error)

          report_cleanup(error, orphan, on_error)
        end
      end
    end

    # Reads a lock, or one of its slots. A lock that nobody has held is free.
    #
    # @param slot [Integer] the number of a slot, if several processes hold the lock; 0 for the lock itself
    # @return [LockStatus]
    def get(namespace, key, slot: 0)
      Messages.status(calls.run(:get_lock, Messages.get(namespace, key, slot)).lock)
    end

    # Ends the wait of an orphaned lock for a cleanup. Only administrators may call this.
    #
    # @param fence [Integer] the fence of the grant whose cleanup is due: that of {LockStatus#obituary}
    # @param resolution [Symbol] `:retry` to begin the cleanup again, with its attempts counted from 0; `:cleaned` to
    #   let the lock pass on, because the caller has cleaned up
    # @param slot [Integer] the slot whose cleanup is due, if several processes held the lock
    # @raise [Error::FencePassed, Error::Denied, Error::Invalid]
    # @return [void]
    def resolve_orphan(namespace, key, fence:, resolution:, slot: 0)
      calls.run(:resolve_orphan, Messages.resolve(Messages.path(namespace, key, slot), fence, resolution))
      nil
    end

    # Lists the locks of a namespace and of the namespaces in it that are not free. The slots that are taken follow
    # their lock.
    #
    # @param namespace [String] empty for all locks, which only administrators may list
    # @param limit [Integer, nil] the most locks of a page; 100 if nil
    # @param after [LockStatus, nil] the last lock of the page before
    # @return [LockPage]
    def list(namespace = "", limit: nil, after: nil)
      Messages.page(calls.run(:list_locks, Messages.list(namespace, limit, after)))
    end

    # Takes a lock from its holder, and tells it so. The lock passes on when the holder's time is over (K20). Only
    # administrators may call this.
    #
    # @param fence [Integer] the fence of the holder, so that no later grant is taken by mistake
    # @param at_once [Boolean] true to pass the lock on at once, though its holder may still work under it: only fences
    #   then refuse its writes
    # @param slot [Integer] the slot that its holder loses, if several processes hold the lock; the others go on
    # @raise [Error::FencePassed, Error::Denied]
    # @return [void]
    def force(namespace, key, fence:, at_once: false, slot: 0)
      calls.run(:force_lock, Messages.force(Messages.path(namespace, key, slot), fence, at_once))
      nil
    end

    # Closes the session. Its locks pass on at once, so no thread may work under them any more. A later acquire
    # opens another session. Does nothing in a process that was forked from the session's own.
    #
    # @return [void]
    def close
      session, calls = @lock.synchronize { [@session, @calls].tap { @session = @calls = nil } }
      session&.close
      calls&.close
    end

    private

    # @param granted [Object] a message with the `fence` and the `slot` of the grant
    def hold(session, wanted, granted, ask_id)
      path = wanted.fetch(:lock)
      HeldLock.new(session, Messages.path(path.namespace, path.key, granted.slot), granted.fence, ask_id)
    end

    # Runs the block with the session of this process. Runs it again with another one if the session has ended without
    # the knowledge of this process: an operator evicted it, for example.
    #
    # @yieldparam session [Session]
    def under_session
      attempted = session
      yield attempted
    rescue Error::SessionEnded, Error::SessionNotFound
      attempted.lose
      yield session
    end

    # The message of an error may contain a key, so only its class is logged (K24).
    def report_cleanup(error, orphan, on_error)
      cleanup = orphan ? "cleanup #{orphan.attempt} of at most #{orphan.most_attempts}" : "the wait for a cleanup"
      @configuration.logger.warn("leasehold: #{cleanup} raised #{error.class}")
      on_error&.call(error, orphan)
      sleep(Reaping::PAUSE_SECONDS) unless orphan
    end

    # Returns the live session of this process, and opens one if there is none.
    def session
      @lock.synchronize do
        @session = Session.open(current_calls, @configuration) unless @session&.usable?
        @session
      end
    end
  end
end
