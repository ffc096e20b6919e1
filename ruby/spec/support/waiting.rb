# frozen_string_literal: true

module Support
  # Waits for conditions instead of durations.
  module Waiting
    DEADLINE_SECONDS = 60
    # Seconds between two evaluations, in which the awaited work can run.
    PAUSE_SECONDS = 0.005

    module_function

    # Calls the block until its result is true, and returns that result. Raises after the deadline.
    def wait_for(condition, seconds: DEADLINE_SECONDS)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      loop do
        result = yield
        return result if result

        raise "waited #{seconds} s in vain for #{condition}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

        sleep(PAUSE_SECONDS)
      end
    end

    # Waits for what calls of a server say that was away. gRPC connects to it again after a pause, in which all calls fail at once
    # (`grpc.max_reconnect_backoff_ms` of the gem's channels).
    def wait_for_answer(condition)
      wait_for(condition) do
        yield
      rescue Leasehold::Error::Temporary
        nil
      end
    end
  end
end
