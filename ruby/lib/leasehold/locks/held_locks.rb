# frozen_string_literal: true

module Leasehold
  class Locks
    # The locks that the blocks of the running fiber hold, innermost last. An acquire within such a block names their
    # asks, so that the server can refuse a wait that would never end (K15).
    #
    # Each fiber has its own list: a thread or fiber that is started in a block does not hold the block's locks, because
    # the block may end while that thread waits.
    module HeldLocks
      VARIABLE = :leasehold_held_locks
      # The most asks that an acquire may name.
      MAX_ASKS = 64
      private_constant :VARIABLE, :MAX_ASKS

      class << self
        # Runs the block, in which the running fiber holds these locks.
        #
        # @param locks [Array<HeldLock>]
        # @return [Object] the block's result
        def during(locks)
          outer = Thread.current[VARIABLE]
          Thread.current[VARIABLE] = [*outer, *locks]
          yield
        ensure
          Thread.current[VARIABLE] = outer
        end

        # @return [Array<String>] the ids of the asks of the innermost locks that the running fiber holds. A block may have
        #   lost its lock or released it already; a forked process holds no lock of its parent
        def ask_ids
          Array(Thread.current[VARIABLE]).select(&:held?).last(MAX_ASKS).map(&:ask_id)
        end
      end
    end
  end
end
