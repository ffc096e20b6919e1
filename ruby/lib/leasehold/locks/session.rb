# frozen_string_literal: true

require "securerandom"
require "set"

module Leasehold
  class Locks
    # The session of this process: the keepalive of all that it holds or waits for. A thread renews it.
    #
    # The thread is one of Ruby, not of Rust: the extension has no gRPC, whose client would multiply the crates that a
    # source gem compiles. Ruby's scheduler gives the thread its turn after 100 ms of each busy thread at most (Ruby
    # 3.1, thread.c: TIME_QUANTUM_MSEC). A call of C code that keeps Ruby's lock past the deadline does lose the session.
    # {Silence} then tells the loss as soon as any Ruby code runs, and the server passes the locks on later.
    class Session
      # The pause after a call without an answer.
      RETRY_PAUSE_SECONDS = 0.1
      # Errors after which no renewal can succeed.
      FINAL_ERRORS = [Error::LockLost, Error::SessionNotOwned, Error::Denied, Error::Unauthenticated].freeze
      private_constant :RETRY_PAUSE_SECONDS, :FINAL_ERRORS

      attr_reader :id, :calls, :listeners

      # Opens a session, and starts its threads.
      #
      # @raise [Error]
      def self.open(calls, configuration)
        new(calls, configuration).tap(&:start)
      end

      def initialize(calls, configuration)
        @pid = Process.pid
        @calls = calls
        @deadline_seconds = configuration.lock_deadline_seconds
        @logger = configuration.logger
        @id = SecureRandom.random_bytes(16)
        @terms = [configuration.session_duration_seconds, configuration.session_grace_seconds].map { |time| Messages.micros(time) }
        @lock = Mutex.new
        @wake = ConditionVariable.new
        @holders = {}.compare_by_identity
        @taken = Set.new
        @unfinished = []
      end

      # The deadlines count from before the call, because the server counts from its arrival.
      def start
        @silence = Silence.new(*@terms, Clock.micros)
        @calls.run(:open_session, Messages.open(@id, *@terms))
        @listeners = Listeners.new(@silence, @logger)
        @thread = Thread.new { keep }
        @thread.name = "leasehold-session"
        ExitHook.add(self)
      end

      # Returns false in a process that was forked from the session's own.
      def own?
        @pid == Process.pid
      end

      # Returns true if locks can be acquired under this session.
      def usable?
        standing != :lost
      end

      # @return [Symbol]
      def standing
        own? ? @silence.standing : :lost
      end

      # @return [Float]
      def remaining
        own? ? @silence.remaining : 0.0
      end

      # @raise [Error::SessionLost, Error::Forked]
      def check!
        unless own?
          raise Error::Forked.new("this process was forked from the holder: acquire or take in this process", code: "FORKED")
        end
        return unless standing == :lost

        raise Error::SessionLost.new("the session is lost: stop the work, since another process may do it", code: "SESSION_LOST")
      end

      # Notes a lock or a batch that the current thread holds. The word that an operator took it may have come before the late
      # answer with its grant (K20).
      def hold(lock)
        @lock.synchronize { @holders[lock] = Thread.current }
        @listeners.lose(lock) if taken?(lock)
      end

      # Returns true if the lock is not released, even if it is lost.
      def holds?(lock)
        @holders.key?(lock)
      end

      # Returns true if an operator has taken the lock.
      def taken?(lock)
        @taken.include?(lock.fence)
      end

      # Forgets a lock that is not held any more.
      def drop(lock)
        @lock.synchronize { @holders.delete(lock) }
        @listeners.remove(lock)
      end

      # Returns true if no other thread can be at work under a lock of this session.
      def idle?
        @lock.synchronize { @holders.each_value.none? { |thread| thread.alive? && thread != Thread.current } }
      end

      # Sends a release or a leave. If no answer comes, or the thread is interrupted, the session's thread repeats it:
      # otherwise a lock that nobody uses would be held for as long as this process lives.
      #
      # @raise [Error] if the server refuses it
      # @return [Boolean] true if the server has answered
      def finish(method, request)
        answered = false
        @calls.run(method, request)
        answered = true
      rescue Error => error
        answered = !error.temporary?
        raise if answered

        false
      ensure
        finish_later(method, request) unless answered
      end

      # Lets the session's thread send a release or a leave, and repeat it until an answer comes.
      #
      # @return [void]
      def finish_later(method, request)
        @lock.synchronize do
          @unfinished << [method, request]
          @wake.signal
        end
      end

      # Sends a settle again and again, until an answer comes or the session is lost. If the thread is interrupted, the
      # session's thread repeats it.
      #
      # @raise [Error] if the server refuses it
      # @raise [Error::SessionLost, Error::Forked]
      # @return [Object] the response
      def insist(method, request)
        ended = false
        loop do
          check!
          response = @calls.run(method, request, tries: 1)
          ended = true
          return response
        rescue Error => error
          ended = !error.temporary?
          raise if ended

          sleep(RETRY_PAUSE_SECONDS)
        end
      ensure
        finish_later(method, request) unless ended
      end

      # Renews the session now.
      #
      # @return [Boolean] true if the server has answered
      def renew
        sent_at = Clock.micros
        seconds = [[@silence.remaining, @silence.renewal_seconds].min, RETRY_PAUSE_SECONDS].max
        answer = @calls.run(:renew_session, Messages.renew(@id), tries: 1, seconds: seconds)
        # Before the deadline moves: it does not move for these locks (K20).
        take_away(answer.forced_fences)
        renewed(sent_at)
        true
      rescue *FINAL_ERRORS
        lose
        true
      rescue Error
        false
      rescue StandardError => error
        # A defect must not end the thread without a word. The deadline stays true.
        @logger.error("leasehold: a renewal raised #{error.class}")
        false
      end

      # Notes a renewal that the server answered.
      #
      # @param sent_at [Integer] the time at which the call was sent, by {Clock}
      # @return [void]
      def renewed(sent_at)
        @silence.renewed(sent_at)
        @listeners.wake
      end

      # Ends the session, because the server has.
      def lose
        @silence.end
        @lock.synchronize { @wake.signal }
        @listeners.wake
      end

      # Ends the threads, then the session. The server's answer is not needed: without it the session ends by its
      # silence.
      def close
        ExitHook.remove(self)
        return unless own?

        @listeners.clear
        lose
        @thread.join unless @thread == Thread.current
        @calls.run(:close_session, Messages.close(@id), tries: 1)
      rescue Error
        nil
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{own? ? standing : "of another process"}>"
      end

      private

      # Renews the session until it is lost.
      def keep
        answered = true
        until standing == :lost
          wait(answered)
          answered = (@silence.renewal_in.positive? || renew) && repeat_unfinished
        end
        # Blocks of `on_lost` are told, although the clock alone has ended the session.
        lose
      end

      def wait(answered)
        @lock.synchronize do
          seconds = answered ? (@unfinished.empty? ? @silence.renewal_in : 0) : RETRY_PAUSE_SECONDS
          @wake.wait(@lock, seconds) if seconds.positive? && standing != :lost
        end
      end

      # Notes the locks that an operator has taken. They count as lost at once, although they pass on later.
      def take_away(fences)
        taken = @lock.synchronize do
          untold = fences.reject { |fence| @taken.include?(fence) }
          @taken.merge(untold)
          @holders.each_key.select { |lock| untold.include?(lock.fence) }
        end
        taken.each { |lock| @listeners.lose(lock) }
      end

      # @return [Boolean] true if nothing is left to repeat
      def repeat_unfinished
        until @unfinished.empty?
          begin
            @calls.run(*@unfinished.first, tries: 1, seconds: @silence.renewal_in.clamp(RETRY_PAUSE_SECONDS, @deadline_seconds))
          rescue Error => error
            return false if error.temporary?
          end
          @lock.synchronize { @unfinished.shift }
        end
        true
      end
    end
  end
end
