# frozen_string_literal: true

module Leasehold
  class Locks
    # Ends the sessions of this process when it ends. Locks under which no thread works pass on at once.
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
          @lock.synchronize { @sessions.dup }.each { |session| session.end_process if session.own? }
        rescue StandardError
          nil
        end
      end
    end
  end
end
