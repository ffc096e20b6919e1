# frozen_string_literal: true

module Leasehold
  class Locks
    # Tells blocks of changes of a session's standing, in a thread of its own: a block that takes long delays no
    # renewal. The thread ends once the session is lost and all are told.
    class Listeners
      # The longest wait of the thread. Waits stand still while the machine sleeps, but the session's silence does not.
      MAX_WAIT_SECONDS = 5
      Listener = Struct.new(:owner, :standing, :block, :told)
      private_constant :MAX_WAIT_SECONDS, :Listener

      # @param silence [Silence]
      # @param logger [Logger]
      def initialize(silence, logger)
        @silence = silence
        @logger = logger
        @lock = Mutex.new
        @changed = ConditionVariable.new
        @listeners = []
        @lost = {}.compare_by_identity
        @standing = :safe
        @changes = 0
        @lock.synchronize { run }
      end

      # Adds a block that is called at each change to this standing, and at once if the standing is this one already.
      def add(owner, standing, block)
        raise ArgumentError, "`on_#{standing}` has no block: pass one" unless block

        @lock.synchronize do
          @listeners << Listener.new(owner, standing, block, nil)
          @running ? @changed.signal : run
        end
      end

      # Makes the thread tell this owner's blocks of its loss, whatever the standing of the session is.
      def lose(owner)
        @lock.synchronize do
          @lost[owner] = true
          @changed.signal
        end
      end

      # Forgets the blocks of this owner.
      def remove(owner)
        @lock.synchronize do
          @listeners.delete_if { |listener| listener.owner.equal?(owner) }
          @lost.delete(owner)
        end
      end

      # Makes the thread judge the standing anew.
      def wake
        @lock.synchronize { @changed.signal }
      end

      # Forgets all blocks, and lets the thread end with the session.
      def clear
        @lock.synchronize { @listeners.clear }
      end

      private

      def run
        @running = true
        Thread.new { tell_changes }.name = "leasehold-standing"
      end

      def tell_changes
        while (due = @lock.synchronize { next_due })
          publish if due.empty?
          due.each { |listener| tell(listener) }
        end
      end

      # Returns the listeners to tell; an empty list if only the standing has changed; nil at the end.
      def next_due
        loop do
          return [] if changed?

          due = @listeners.select { |listener| due?(listener) }
          return due.each { |listener| listener.told = told(listener) } if due.any?
          return @running = nil if @standing == :lost

          @changed.wait(@lock, @silence.changes_in&.clamp(0.001, MAX_WAIT_SECONDS))
        end
      end

      def due?(listener)
        listener.standing == (@lost[listener.owner] ? :lost : @standing) && listener.told != told(listener)
      end

      # Returns a mark of the change that a listener is told of.
      def told(listener)
        @lost[listener.owner] ? :lost : @changes
      end

      def changed?
        before, @standing = @standing, @silence.standing
        return false if before == @standing

        @changes += 1
      end

      def publish
        standing = @standing
        return if standing == :safe || !defined?(ActiveSupport::Notifications)

        ActiveSupport::Notifications.instrument("session_#{standing}.leasehold", {})
      end

      # An exception of one block must not keep others from being told. Its message may contain anything, so only its
      # class is logged.
      def tell(listener)
        listener.block.call
      rescue StandardError => error
        @logger.error("leasehold: the block of `on_#{listener.standing}` raised #{error.class}")
      end
    end
  end
end
