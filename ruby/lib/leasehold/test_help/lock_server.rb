# frozen_string_literal: true

require "leasehold/native"
require_relative "clock"
require_relative "locks"

module Leasehold
  module TestHelp
    # The sessions and locks of a {StubServer}: the engine itself, over a store in memory, and the threads that wait
    # for a lock. No time passes by itself: a session is silent, and the time of a former holder is over, when the test
    # says so.
    class LockServer
      # The service whose processes acquire locks: the one of a server without certificates.
      PRINCIPAL = "trusted"
      NO_SESSION = "the application has no session: let it acquire a lock first"
      private_constant :PRINCIPAL, :NO_SESSION

      # @return [Locks] the locks of the application's process
      attr_reader :locks
      # @return [Locks] the locks of another process
      attr_reader :other_locks
      # @return [Numeric, nil] the most seconds for which an acquire waits; nil for as long as it asks
      attr_accessor :longest_wait

      # @param original [LockServer, nil] a server whose locks are copied into the new one
      def initialize(original = nil)
        # A guard in the database remembers fences of earlier tests, so those of a later test must be larger.
        fence = Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
        @service = original ? original.copy_of_service(fence) : Native::LockService.new(PRINCIPAL, fence)
        @longest_wait = original&.longest_wait
        @lock = Monitor.new
        @changed = @lock.new_cond
        @locks = Locks.new(self)
        @other_locks = Locks.new(self)
      end

      # Acquires a lock as another process, so that it is not free.
      #
      # @param shared [Boolean] true to share the lock, as readers do
      # @param permits [Integer, nil] to hold one of this many permits of the lock
      # @raise [Error::LockHeld] if the lock is not free already
      # @return [HeldLock] the other process's lock, which {HeldLock#release} passes on
      def hold_lock(namespace, key, shared: false, permits: nil)
        held = @other_locks.try_acquire(namespace, key, shared: shared, permits: permits) and return held

        raise Error::LockHeld.new("the lock is not free: let its holder release it first", code: "LOCK_HELD")
      end

      # Takes a lock from its holder, and tells it so. The lock is withheld until {#end_withholding}.
      #
      # @param at_once [Boolean] true to pass the lock on at once
      # @param slot [Integer] the slot that its holder loses, if several processes hold the lock
      # @raise [Error::FencePassed] if nobody holds the lock
      # @return [void]
      def force_lock(namespace, key, at_once: false, slot: 0)
        fence = @other_locks.get(namespace, key, slot: slot).fence || 0
        @other_locks.force(namespace, key, fence: fence, at_once: at_once, slot: slot)
      end

      # Makes the locks of a namespace wait for a cleanup after the death of their holder, as `[[locks.reaped]]` does
      # for a server. A cleanup that has failed is offered again at once.
      #
      # @param namespace [String] its locks, and those of the namespaces in it, from their next acquire on
      # @param attempts [Integer] the most cleanups that are begun before a lock is set aside
      # @raise [Error::Invalid] if an argument is out of bounds
      # @return [void]
      def reap_namespace(namespace, attempts: 10)
        change { |service| service.reap_namespace(namespace.to_s, attempts) }
      end

      # Passes a withheld lock on, because the time of its former holder is over.
      #
      # @param slot [Integer] the slot that is withheld, if several processes held the lock
      # @raise [ArgumentError] if the lock is not withheld
      # @return [void]
      def end_withholding(namespace, key, slot: 0)
        ended = change { |service, now| service.elapse([namespace.to_s, key.to_s, slot], now) }
        raise ArgumentError, "the lock is not withheld: take it from its holder with `force_lock` first" unless ended
      end

      # Expires a session, as if it had not renewed for its duration and grace. Its locks pass on.
      #
      # @param session_id [String, nil] the `session_id` of a {LockStatus}; nil for the application's session
      # @return [void]
      def expire_session(session_id = nil)
        id = session_id ? [session_id.delete("-")].pack("H*") : @locks.session_id
        raise ArgumentError, NO_SESSION unless id

        change { |service, now| service.expire(id, now) }
        tell_processes
      end

      # Runs the block while the application's session is in jeopardy: the server has not answered for the duration,
      # and does not answer. After the block the session renews, and is safe again.
      #
      # @return [Object] the block's result
      def jeopardize_session
        stop
        raise ArgumentError, NO_SESSION unless @locks.jeopardize

        yield
      ensure
        start
        tell_processes
      end

      # Lets the sessions of this process renew. They learn which of their locks an operator took, or that they ended.
      #
      # @return [void]
      def tell_processes
        [@locks, @other_locks].each(&:renew)
      end

      # Calls the engine.
      #
      # @yieldparam service [Native::LockService]
      # @yieldparam now [Integer] microseconds since 1970
      # @raise [GRPC::Unavailable] after {#stop}
      # @raise [Error::Misconfigured] after {#close}
      def call
        @lock.synchronize do
          raise Error::Misconfigured, "the test of this stub server has ended: call `Leasehold.locks` in each test" if @closed
          raise GRPC::Unavailable, "the stub server is stopped" if @stopped

          yield @service, Clock.micros
        end
      end

      # Calls the engine, and lets the threads of {#await} look at what it has changed.
      def change(&block)
        @lock.synchronize { call(&block).tap { @changed.broadcast } }
      end

      # Calls the block now and after each change, until its result is true.
      #
      # @param seconds [Numeric] the longest time
      # @return [Object, nil] the true result; nil if the time is over
      def await(seconds)
        ends_at = monotonic + [seconds, @longest_wait].compact.min
        @lock.synchronize do
          loop do
            result = yield
            left = ends_at - monotonic
            return result if result || left <= 0

            @changed.wait(left)
          end
        end
      end

      # Makes every call fail as if the server could not be reached, until {#start}.
      def stop
        @lock.synchronize do
          @stopped = true
          @changed.broadcast
        end
      end

      # Makes calls succeed again after {#stop}.
      def start
        @lock.synchronize { @stopped = false }
      end

      # Ends all waits, and the sessions of both processes with their threads.
      #
      # @return [void]
      def close
        # First, because a thread that waits would open another session.
        @lock.synchronize do
          @closed = true
          @changed.broadcast
        end
        [@locks, @other_locks].each(&:close)
      end

      # Returns a text without the locks.
      def inspect
        "#<#{self.class}#{" stopped" if @stopped}>"
      end

      protected

      def copy_of_service(fence)
        @lock.synchronize { @service.copy(fence) }
      end

      private

      def monotonic
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
