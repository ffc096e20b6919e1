# frozen_string_literal: true

module Leasehold
  class Locks
    # The clock by which a process counts the silence of its session. It runs on while the machine sleeps, which
    # Linux's monotonic clock does not (clock_gettime(2)); that of macOS does.
    module Clock
      ID = Process.const_defined?(:CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC
      private_constant :ID

      # @return [Integer] microseconds since some moment
      def self.micros
        Process.clock_gettime(ID, :microsecond)
      end
    end
  end
end
