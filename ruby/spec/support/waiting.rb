# frozen_string_literal: true

module Support
  # Tests wait for what they expect, never for time to pass.
  module Waiting
    DEADLINE_SECONDS = 15
    # Between two questions, so that those who are waited for have the machine.
    PAUSE_SECONDS = 0.005

    module_function

    # Asks the block again and again until it says something true, and answers that.
    def wait_for(what, seconds: DEADLINE_SECONDS)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      loop do
        seen = yield
        return seen if seen

        raise "waited #{seconds} s in vain for #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

        sleep(PAUSE_SECONDS)
      end
    end
  end
end
