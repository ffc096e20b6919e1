# frozen_string_literal: true

module Leasehold
  # An orphaned lock, which this process holds while it cleans up after the holder that has died. Its fence is that of
  # the cleanup (K17).
  class Orphan < HeldLock
    # @api private
    # @param orphan [Contract::Leasehold::Locks::V1::Orphan]
    def initialize(session, orphan, ask_id)
      super(session, orphan.lock, orphan.fence, ask_id)
      @obituary = Locks::Messages.obituary(orphan.obituary)
    end

    # @return [Integer] the fence of the grant whose holder has died. The cleanup of one grant may come more than once:
    #   a row with this number, written in the cleanup's own transaction, makes it happen once
    def former_fence
      @obituary.fence
    end

    # @return [Integer] the number of this cleanup, from 1
    def attempt
      @obituary.attempts
    end

    # @return [Integer] the most cleanups that are begun; after the last one has failed, the lock is set aside
    def most_attempts
      @obituary.most_attempts
    end
  end
end
