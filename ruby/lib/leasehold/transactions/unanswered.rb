# frozen_string_literal: true

module Leasehold
  module Transactions
    # A begin that nobody answered, though it may have taken effect. Once the transaction is rolled back it is asked for
    # again under the same key, which gets the same lease, and rolled back: else whoever tries again would find the names
    # under a lease that nobody knows of until reconciliation gives it up.
    class Unanswered
      include Record

      # What leaves open whether a begin took effect.
      def self.covers?(error)
        error.is_a?(Error::DeadlineExceeded) || (error.is_a?(Error::Unavailable) && !error.is_a?(Error::CircuitOpen))
      end

      def initialize(client, effect, key)
        @client = client
        @effect = effect
        @key = key
      end

      def rolledback!(**)
        give_up
      end

      # Takes back what may have been begun. Where this fails too, reconciliation does it later.
      def give_up
        lease = @client.recover_lease(creates: @effect.creates, destroys: @effect.destroys, idempotency_key: @key)
        @client.rollback_update(lease.uuid)
      rescue Error => error
        Events.publish(:unsettled, lease: lease&.uuid, wanted: :rollback, error: error.class.name, message: error.message)
      end
    end
  end
end
