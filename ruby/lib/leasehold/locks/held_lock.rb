# frozen_string_literal: true

module Leasehold
  # A lock that this process holds until {#release}, or until its session is lost.
  #
  # `held?`, `remaining` and {#check!} are computed from the clock, without the server (K11). So they are true even
  # after the process was stopped, or a call of C code kept all of its threads from running.
  class HeldLock
    include Locks::Holding

    # @return [Integer] the fence of the grant, greater than that of every earlier grant (K05)
    attr_reader :fence
    # @api private
    # @return [String] the id of the ask under which this process holds the lock, 16 bytes
    attr_reader :ask_id
    # @return [String] the value for readers of the lock that the end of the block releases it with (K03)
    attr_accessor :value

    # @api private
    def initialize(session, path, fence, ask_id)
      @session = session
      @path = path
      @fence = fence
      @ask_id = ask_id
      @value = ""
      @session.hold(self)
    end

    # @return [String]
    def namespace
      @path.namespace
    end

    # @return [String]
    def key
      @path.key
    end

    # @return [Integer] the number of the slot, from 1, if the lock is shared: each permit has another one. 0 if this
    #   process holds the lock alone (K13)
    def slot
      @path.slot
    end

    # @raise [Error::SessionLost] if the lock is released, or its session is lost: stop the work
    # @raise [Error::FencePassed] if an operator has taken the lock: stop the work
    # @raise [Error::Forked] in a process that was forked from the holder
    # @return [self]
    def check!
      @session.check!
      return self if held?
      raise Error::FencePassed.new("an operator has taken the lock: stop the work", code: "FENCE_PASSED") if @session.taken?(self)

      raise Error::SessionLost.new("the lock is released already: acquire it again", code: "SESSION_LOST")
    end

    # Releases the lock. Does nothing if it is released already, or in a process that was forked from the holder.
    #
    # If the server does not answer, the session repeats the release until it does.
    #
    # @param value [String] a value for readers of the lock, of at most 2,048 bytes (K03)
    # @param failed [Boolean] true if the work failed
    # @raise [Error::LockLost] if the lock was lost before
    # @raise [Error::Invalid] if the value is too long: the lock is still held
    # @return [Boolean] true if the server has answered
    def release(value: @value, failed: false)
      return false unless @session.own? && @session.holds?(self)

      @session.check!
      request = Locks::Messages.release(@session.id, @path, @fence, failed, value)
      answered = @session.finish(:release_lock, request)
      @session.drop(self)
      answered
    rescue Error::LockLost
      @session.drop(self)
      raise
    end

    # Calls `leasehold_guard` in the current transaction of ActiveRecord: it can't commit if a later holder of the lock
    # has guarded the resource, or after the session is lost (K18). Of a shared lock, only a later holder of the same slot
    # or of the whole lock counts. The guard is installed by
    # `rails generate leasehold:guard`.
    #
    # @param on [Class] a model; the transaction is that of its database
    # @param resource [String] the name of what the lock protects: each writer must pass the same
    # @raise [GuardRefused] if the transaction can't commit any more
    # @raise [Error::SessionLost]
    # @return [self]
    def guard!(on: ActiveRecord::Base, resource: "#{namespace}/#{key}")
      check!
      Guard.new(on).call(resource, fence, remaining, slot)
      self
    end

    # Runs the block, and releases the lock after it.
    #
    # @api private
    def use(&block)
      HeldLock.use_all([self], &block)
    end

    # Runs the block with these locks, and releases all of them after it.
    #
    # @api private
    # @param locks [Array<HeldLock>]
    def self.use_all(locks)
      failed = false
      # {Locks#with} defers interrupts, such as that of Timeout, so that none comes between the grant and this line.
      Locks::HeldLocks.during(locks) { Thread.handle_interrupt(Object => :immediate) { yield(*locks) } }
    rescue Exception # rubocop:disable Lint/RescueException
      failed = true
      raise
    ensure
      # A killed thread comes here without an exception (Thread#kill).
      release_all(locks, failed || Thread.current.status == "aborting")
    end

    # Releases locks after a block. If a release raises or is interrupted, the others are released all the same.
    #
    # @api private
    def self.release_all(locks, failed)
      first, *others = locks
      first&.end_use(failed)
    ensure
      release_all(others, failed) if others&.any?
    end

    # Releases the lock after a block.
    #
    # @api private
    def end_use(failed)
      failed ? release_failed : release_succeeded
    end

    # Returns a text without the key (K24).
    def inspect
      "#<#{self.class} of #{namespace}, fence #{fence}>"
    end

    private

    def release_succeeded
      release
    rescue Error::Invalid
      release_failed
      raise
    end

    # The block's own exception must reach the caller, so no other is raised. A lost lock needs no release.
    def release_failed
      release(failed: true)
    rescue Error::Invalid
      release(value: "", failed: true)
    rescue Error
      nil
    end
  end
end
