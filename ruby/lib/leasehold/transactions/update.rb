# frozen_string_literal: true

module Leasehold
  module Transactions
    # The one update of a transaction. Its lease is begun immediately before COMMIT, after the transaction
    # has written its rows, so a refused claim rolls everything back. The lease's row is written in the same
    # transaction and proves the COMMIT (R02).
    class Update
      # Reasons why a destroy needs no work: the row was never claimed, or its claim moved to another row or
      # cell.
      ALREADY_GONE = %w[CLAIM_NOT_FOUND CLAIM_CHANGED NOT_OWNER].freeze

      class << self
        # Begins the update of the connection's current transaction, which is about to COMMIT. All callbacks
        # have run, so its changes are complete ({ActiveRecordCompat::CommitPoint}).
        #
        # @raise [ClaimsRejected] if a claim was refused or no answer came; roll the transaction back
        # @raise [Timeout::Error] if the write of a row was interrupted
        def begin(connection)
          transaction = connection.current_transaction
          InterruptedWrite.check(transaction)
          InterruptedWrite.on_interrupt(-> { InterruptedWrite.roll_back(connection) }) { begin_changes(connection, transaction) }
        end

        # @raise [Error::Internal] if a change of the transaction is in no update: its COMMIT would leave a
        #   row without its claims
        def check_complete(transaction)
          change = ActiveRecordCompat.participants(transaction, Change).find { |one| !one.enrolled? } or return

          raise Error::Internal.new(
            "`#{change.record.class}##{change.attribute.name}` was written after the claims of its transaction were begun: " \
            "write it in a `before_commit` callback at the latest", code: "UNCLAIMED_CHANGE"
          )
        end

        # Returns true if the rejected claim is a destroy of a claim that the row no longer owns.
        #
        # @param rejected [RejectedClaim]
        def already_gone?(rejected)
          rejected.list == :destroy && ALREADY_GONE.include?(rejected.code)
        end

        private

        def begin_changes(connection, transaction)
          changes = ActiveRecordCompat.participants(transaction, Change)
          covered = ActiveRecordCompat.participants(transaction, CoveredEffect)
          return if changes.empty? && covered.empty?

          effect = covered.map(&:effect).inject(NetEffect.new(changes)) { |rest, part| rest.minus(part) }
          check_own_leases(connection, effect)
          new(connection, effect).begin
          changes.each(&:enroll)
        end

        # A transaction with `joinable: false` has a lease for each transaction in it that wrote claims. The
        # server refuses a bucket of one of them as busy, and no retry would help.
        def check_own_leases(connection, effect)
          leases = ActiveRecordCompat.transactions(connection)[..-2].flat_map { |one| ActiveRecordCompat.participants(one, Settlement) }
          return if leases.empty?

          held = leases.flat_map { |lease| lease.effect.buckets }.to_set
          return if effect.buckets.none? { |bucket| held.include?(bucket) }

          raise Error::Invalid.new(
            "a transaction with `joinable: false` changed the claim of one value twice: change it once, or leave out " \
            "`joinable: false`", code: "INVALID_UPDATE"
          )
        end
      end

      # @param effect [NetEffect] the claims to create and destroy
      def initialize(connection, effect, client: Leasehold.client)
        @connection = connection
        @effect = effect
        @client = client
      end

      # Begins the lease within the current transaction.
      def begin
        begin_effect
        join_lease
      end

      # Begins the lease before the transaction; {#join} adds it to the transaction.
      #
      # If a claim to destroy does not exist, no lease is begun before the transaction has locked the row:
      # verification could create that claim between an early lease and the row lock. The lease is then
      # begun before COMMIT, as usual.
      def begin_early
        @early = true
        begin_effect
      end

      # Adds the early lease to the current transaction. Does nothing if {#begin_early} postponed the lease.
      def join
        return if @postponed

        ActiveRecordCompat.add_participant(@connection, CoveredEffect.new(@effect))
        join_lease
      end

      private

      def begin_effect
        @pending = @effect
        return if @pending.empty?

        # Read before the call, so that the row is never younger than the lease (R04).
        @begun_at, @backend_pid = LeaseTable.new(@connection).clock_and_session
        @lease = begin_lease
      end

      def join_lease
        return unless @lease

        # First, because a model's `after_commit` callback may change a claim that this lease still holds.
        ActiveRecordCompat.add_first_participant(@connection, Settlement.new(@connection, @lease.uuid, @pending, @backend_pid))
        LeaseTable.new(@connection).insert(@lease.uuid, @begun_at)
      end

      # @param first_refusal [Array(Error, NetEffect), nil] the refusal of a first try, and its effect
      # @return [Lease, nil] nil if nothing is left to begin, or the lease is postponed
      def begin_lease(first_refusal = nil)
        key = SecureRandom.hex
        answered = false
        lease = @client.begin_update(creates: @pending.creates, destroys: @pending.destroys, idempotency_key: key)
        answered = true
        lease
      rescue Error => error
        answered = !UnansweredBegin.outcome_unknown?(error)
        begin_reduced(error, first_refusal)
      ensure
        # Also runs if a timeout or `Thread#kill` interrupts the call.
        release_after_rollback(key) unless answered
      end

      # Begins a smaller or changed effect if the refusal allows one; raises otherwise. At most one try
      # replaces claims that the rows may own: if it fails too, the first refusal is reported.
      def begin_reduced(error, first_refusal)
        raise ClaimsRejected.from(*(error.temporary? ? [error, @pending] : first_refusal)) if first_refusal

        return postpone if @early && only_already_gone?(error)

        refusal = [error, @pending]
        only_gone = only_already_gone?(error)
        reduced = only_gone ? @pending.without_destroys(error.destroy_positions) : @pending.replacing_own_claims(error)
        raise ClaimsRejected.from(*refusal) unless reduced

        @pending = reduced
        begin_lease(only_gone ? nil : refusal) unless reduced.empty?
      end

      # Leaves the whole effect to the update that is begun before COMMIT.
      def postpone
        @postponed = true
        nil
      end

      # Releases the claims of an unanswered begin: at once without a transaction, else after its rollback,
      # because the network calls must not extend the time for which the transaction holds row locks.
      def release_after_rollback(key)
        begin_without_answer = UnansweredBegin.new(@client, @pending, key)
        return begin_without_answer.release if Nesting.none_open?(@connection)

        ActiveRecordCompat.add_first_participant(@connection, begin_without_answer)
      end

      def only_already_gone?(error)
        error.rejected.any? && error.rejected.all? { |rejected| Update.already_gone?(rejected) }
      end
    end
  end
end
