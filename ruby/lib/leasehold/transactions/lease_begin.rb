# frozen_string_literal: true

module Leasehold
  module Transactions
    # Begins one lease. If the refusal allows it, the begin is repeated with a smaller or changed effect.
    class LeaseBegin
      # Raised if a lease cannot be begun before its transaction.
      class Postponed < Error; end

      # Reasons why a destroy needs no work: the row was never claimed, or its claim moved to another row or
      # cell.
      ALREADY_GONE = %w[CLAIM_NOT_FOUND CLAIM_CHANGED NOT_OWNER].freeze

      class << self
        # Returns true if the rejected claim is a destroy of a claim that the row no longer owns.
        #
        # @param rejected [RejectedClaim]
        def already_gone?(rejected)
          rejected.list == :destroy && ALREADY_GONE.include?(rejected.code)
        end

        # Divides an effect that exceeds the number of claims per update (B11).
        #
        # @param error [Error::Invalid] the refusal
        # @return [Array<NetEffect>, nil] nil if the refusal has another cause, or the effect is indivisible
        def split(effect, error)
          return unless error.metadata["limit"] == "claims_per_update"

          parts = effect.parts(error.metadata.fetch("max").to_i)
          parts if parts.many?
        end
      end

      # @param effect [NetEffect]
      # @param early [Boolean] true if no transaction is open
      def initialize(connection, effect, client, early: false)
        @connection = connection
        @pending = effect
        @client = client
        @early = early
        # Calls the setting's block once, here. An unanswered begin is repeated after the transaction's
        # rollback, when the block might return another organization.
        @organization_id = Leasehold.configuration.current_organization_id
      end

      # Begins the lease, and calls the block with it. The block does nothing if no claim is left to begin.
      #
      # @yieldparam lease [Lease]
      # @yieldparam effect [NetEffect] the creates and destroys of the lease
      # @raise [ClaimsRejected, Error::Invalid]
      # @raise [Postponed] if the lease must be begun within the transaction
      def run(first_refusal = nil, &begun)
        key = SecureRandom.hex
        known = false
        begun.call(begin_pending(key), @pending)
        known = true
      rescue Error => error
        known = !UnansweredBegin.outcome_unknown?(error)
        run_reduced(error, first_refusal, &begun)
      ensure
        # `known` is false if no answer came, or if a timeout or `Thread#kill` interrupted the call or the
        # block.
        release_after_rollback(key) unless known
      end

      private

      def begin_pending(key)
        @client.begin_update(
          creates: @pending.creates, destroys: @pending.destroys, organization_id: @organization_id, idempotency_key: key
        )
      end

      # Begins a smaller or changed effect if the refusal allows one, and raises otherwise. Creates are turned
      # into replaces at most once ({NetEffect#replacing_own_claims}). If the begin with the replaces is refused
      # too, the first refusal is raised, unless the second one is temporary.
      #
      # @param first_refusal [Array(Error, NetEffect), nil] the refusal of a first try, and its effect
      def run_reduced(error, first_refusal, &begun)
        raise ClaimsRejected.from(*(error.temporary? ? [error, @pending] : first_refusal)) if first_refusal

        only_gone = only_already_gone?(error)
        raise Postponed if @early && (only_gone || self.class.split(@pending, error))

        refusal = [error, @pending]
        reduced = only_gone ? @pending.without_destroys(error.destroy_positions) : @pending.replacing_own_claims(error)
        raise ClaimsRejected.from(*refusal) unless reduced

        @pending = reduced
        run(only_gone ? nil : refusal, &begun) unless reduced.empty?
      end

      # Releases the claims of an unanswered begin: at once without a transaction, else after its rollback,
      # because the network calls must not extend the time for which the transaction holds row locks.
      def release_after_rollback(key)
        begin_without_answer = UnansweredBegin.new(@client, @pending, key, organization_id: @organization_id)
        return begin_without_answer.release if Nesting.none_open?(@connection)

        ActiveRecordCompat.add_first_participant(@connection, begin_without_answer)
      end

      def only_already_gone?(error)
        error.rejected.any? && error.rejected.all? { |rejected| self.class.already_gone?(rejected) }
      end
    end
  end
end
