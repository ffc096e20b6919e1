# frozen_string_literal: true

module Leasehold
  class Locks
    # Closes the sessions of this process when it ends, so that its locks pass on at once.
    module ExitHook
      @lock = Mutex.new
      @sessions = []

      class << self
        def add(session)
          @lock.synchronize do
            at_exit { close_all } unless @pid
            @pid ||= Process.pid
            @sessions << session
          end
        end

        def remove(session)
          @lock.synchronize { @sessions.delete(session) }
        end

        private

        # A forked process inherits the hook. Its sessions are those that it opened itself.
        def close_all
          @lock.synchronize { @sessions.dup }.each { |session| session.close if session.own? && session.idle? }
        rescue StandardError
          nil
        end
      end
    end
  end
end
