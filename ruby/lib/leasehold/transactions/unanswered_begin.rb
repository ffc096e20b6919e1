# frozen_string_literal: true

module Leasehold
  module Transactions
    # Releases the claims of a begin whose answer was lost: the server may hold a lease that this process
    # does not know. After the transaction's rollback the begin is repeated under the same idempotency key,
    # which returns the same lease (B09), and that lease is rolled back. Otherwise a retry of the save would
    # find its own claims busy until reconciliation rolls the lease back.
    class UnansweredBegin
      include ActiveRecordCompat::Participant

      # Returns true if the error leaves open whether the begin took effect. An open circuit sent no begin.
      def self.outcome_unknown?(error)
        error.is_a?(Error::DeadlineExceeded) || (error.is_a?(Error::Unavailable) && !error.is_a?(Error::CircuitOpen))
      end

      # @param effect [NetEffect, Verification::Begin] the creates and destroys of the begin
      # @param key [String] the begin's idempotency key
      # @param organization_id [Integer, nil] the begin's organization
      def initialize(client, effect, key, organization_id: nil)
        @client = client
        @effect = effect
        @key = key
        @organization_id = organization_id
      end

      def rolledback!(**)
        release
      end

      # Recovers the lease and rolls it back. If that fails too, reconciliation rolls the lease back later.
      #
      # @param options [Hash{Symbol => Numeric}] `deadline_seconds` of the calls
      def release(**options)
        lease = @client.recover_lease(
          creates: @effect.creates, destroys: @effect.destroys, organization_id: @organization_id, idempotency_key: @key,
          **options
        )
        @client.rollback_update(lease.uuid, **options)
      rescue Error::RolledBack
        # `RolledBack`: reconciliation has rolled the lease back already.
      rescue Error => error
        Events.publish(:unsettled, lease: lease&.uuid, wanted: :rollback, error: error.class.name, message: error.message)
      end
    end
  end
end
