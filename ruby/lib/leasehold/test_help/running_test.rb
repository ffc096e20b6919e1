# frozen_string_literal: true

module Leasehold
  module TestHelp
    # The test that runs in a thread. The threads that a test starts belong to it too, because Ruby puts a new thread
    # into the thread group of its creator: a thread that waits for a lock must see the stub server of its test.
    module RunningTest
      # The threads of one test.
      class Group < ThreadGroup
        # @return [Object, nil] nil once the test has ended
        attr_accessor :test
        # @return [ThreadGroup] the group to which the test's own thread returns
        attr_reader :outer

        def initialize(test, outer)
          @test = test
          @outer = outer
          super()
        end
      end

      # Name of the variable of the test's own thread.
      VARIABLE = :leasehold_test
      private_constant :VARIABLE

      class << self
        # @return [Object, nil]
        def current
          group = Thread.current.group
          Thread.current.thread_variable_get(VARIABLE) || (group.test if group.is_a?(Group))
        end

        # Begins a test in this thread. An earlier one that was not ended is ended.
        def begin(test)
          self.end
          Thread.current.thread_variable_set(VARIABLE, test)
          outer = Thread.current.group
          # A thread can't leave an enclosed group. The threads that its tests start then see no test.
          Group.new(test, outer).add(Thread.current) unless outer.enclosed?
        end

        # Ends the test that was begun in this thread.
        def end
          return unless Thread.current.thread_variable_get(VARIABLE)

          Thread.current.thread_variable_set(VARIABLE, nil)
          leave(Thread.current.group)
        end

        private

        def leave(group)
          return unless group.is_a?(Group)

          group.test = nil
          group.outer.add(Thread.current)
        end
      end
    end
  end
end
