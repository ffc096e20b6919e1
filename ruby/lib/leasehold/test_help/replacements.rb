# frozen_string_literal: true

require_relative "running_test"

module Leasehold
  module TestHelp
    # The stub servers and flags that replace those of the application. Each belongs to a test, to a group of
    # tests (`before_all`), or to the whole suite. A test does not see the replacements of tests that run in
    # parallel threads.
    module Replacements
      # @!attribute owner [Object] the test, `:group` or `:suite`
      # @!attribute server [StubServer, nil]
      # @!attribute flags [Hash{Symbol => Boolean}]
      Replacement = Struct.new(:owner, :server, :flags)
      @all = []
      @lock = Mutex.new

      class << self
        # Begins a test in this thread. If the suite or the group has a stub server, the test gets a copy of
        # that server, so that other tests do not see its changes.
        def begin_test(test)
          return if running.equal?(test)

          # First, because a thread without a test sees the servers of all tests that run in other threads.
          RunningTest.begin(test)
          around = server
          add(server: StubServer.new(around)) if around
        end

        # Removes the test's replacements, and ends the test.
        def end_test(test)
          remove(test)
          RunningTest.end if running.equal?(test)
        end

        # Removes the owner's replacements, and closes its stub servers.
        def remove(owner)
          removed = @lock.synchronize do
            own, @all = @all.partition { |replacement| replacement.owner.equal?(owner) }
            own
          end
          removed.each { |replacement| replacement.server&.close }
        end

        # @param owner [Object] this thread's running test, or else a group of tests
        def add(owner: running || :group, server: nil, flags: {})
          @lock.synchronize { @all += [Replacement.new(owner, server, flags)] }
        end

        # @return [StubServer, nil] the newest stub server that this thread sees
        def server
          visible.reverse_each.find(&:server)&.server
        end

        # @return [StubServer, nil] the stub server of this thread's running test
        def server_of_test
          @all.find { |replacement| replacement.server && replacement.owner.equal?(running) }&.server
        end

        # @return [Boolean, nil] nil if the flag is not replaced
        def flag(name)
          visible.reverse_each { |replacement| return replacement.flags[name] if replacement.flags.key?(name) }
          nil
        end

        # @return [Object, nil] the test that runs in this thread, or that has started it
        def running
          RunningTest.current
        end

        private

        # Returns the replacements that this thread sees: those of its running test, of groups and of the
        # suite. A thread without a running test, such as a thread of an application server, sees all of them.
        def visible
          test = running
          return @all unless test

          @all.select { |replacement| replacement.owner.is_a?(Symbol) || replacement.owner.equal?(test) }
        end
      end

      # Prepended to `Leasehold`'s own methods.
      module CurrentClient
        # Returns the client of the stub server, if there is one.
        def client
          Replacements.server&.client || super
        end

        # Returns the locks of the stub server, if there is one.
        def locks
          Replacements.server&.locks || super
        end
      end

      # Prepended to {Configuration}.
      module CurrentFlags
        # Returns the replaced state of the flag, or else the application's.
        def feature_enabled?(flag)
          replaced = Replacements.flag(flag)
          replaced.nil? ? super : replaced
        end
      end

      Leasehold.singleton_class.prepend(CurrentClient)
      Configuration.prepend(CurrentFlags)
    end
  end
end
