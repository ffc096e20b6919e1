# frozen_string_literal: true

module Leasehold
  module Transactions
    # The update with which a transaction claims the values that it wrote. Its lease is begun immediately
    # before COMMIT, after the transaction has written its rows, so a refused claim rolls everything back. The
    # lease's row is written in the same transaction and proves the COMMIT (R02). If the update has more
    # claims than the server allows, several leases are begun.
    class Update
      class << self
        # Begins the update of a transaction, which is about to COMMIT. All callbacks have run, so its changes
        # are complete ({ActiveRecordCompat::CommitPoint}). Then tells the database the rows that they were made in.
        #
        # @param transaction [ActiveRecord::ConnectionAdapters::Transaction] the innermost one of its connection
        # @raise [ClaimsRejected] if a claim was refused or no answer came; roll the transaction back
        # @raise [Timeout::Error] if the write of a row was interrupted
        # @raise [ActiveRecord::StatementInvalid] if the transaction has changes, but the database has ended it
        def begin(transaction)
          InterruptedWrite.check(transaction)
          connection = transaction.connection
          InterruptedWrite.on_interrupt(-> { InterruptedWrite.roll_back(connection) }) do
            begin_changes(connection, transaction)
            CoveredRow.tell(transaction)
          end
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

        private

        def begin_changes(connection, transaction)
          changes = ActiveRecordCompat.participants(transaction, Change)
          covered = ActiveRecordCompat.participants(transaction, CoveredEffect)
          return if changes.empty? && covered.empty?

          # If the database has ended the transaction, the lease's row would be committed by itself, without the
          # transaction's rows.
          Settlement.check_open(transaction) if changes.any?
          effect = covered.map(&:effect).inject(NetEffect.new(changes)) { |rest, part| rest.minus(part) }
          check_own_leases(connection, effect)
          new(connection, effect).begin
          changes.each(&:enroll)
        end

        # Inside of a transaction with `joinable: false`, each inner transaction that changed claims has its
        # own lease. This method raises if the effect has a bucket that one of these leases holds: the server
        # would refuse the bucket as busy, and no retry would help.
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
        @table = LeaseTable.new(connection)
      end

      # Begins the lease within the current transaction, or several leases if the update has more claims than
      # the server allows. Each lease has a row, so reconciliation settles all of them alike if the process
      # dies after COMMIT.
      def begin
        return if @effect.empty?

        read_clock
        parts = [@effect]
        parts.unshift(*begin_part(parts.shift)) until parts.empty?
      end

      # Begins the lease before the transaction; {#join} adds it to the transaction, or {#abandon} rolls it
      # back.
      #
      # Postpones the lease until right before COMMIT in two cases: if the update has more claims than one
      # lease may have, or if a claim to destroy does not exist. Verification could create that claim between
      # an early lease and the row lock.
      def begin_early
        return if @effect.empty?

        read_clock
        LeaseBegin.new(@connection, @effect, @client, early: true).run { |*begun| @begun = begun }
      rescue LeaseBegin::Postponed
        @postponed = true
      end

      # Adds the early lease to the current transaction. Does nothing if {#begin_early} postponed the lease.
      def join
        return if @postponed

        ActiveRecordCompat.add_participant(@connection, CoveredEffect.new(@effect))
        return unless @begun

        lease, = @begun
        register_settlement(*@begun)
        @begun = nil
        @table.insert(lease.uuid, @begun_at)
      end

      # Rolls the early lease back if it did not join a transaction: no other code knows this lease.
      def abandon
        lease, = @begun
        @client.rollback_update(lease.uuid) if lease
      rescue Error => error
        Events.publish(:unsettled, lease: lease.uuid, wanted: :rollback, error: error.class.name, message: error.message)
      end

      private

      # Reads the time for the lease's row before the lease is begun, so that the row is never younger than
      # the lease (R04).
      def read_clock
        @begun_at, @backend_pid = @table.clock_and_session
      end

      # @return [Array<NetEffect>] smaller parts to begin instead if the part has too many claims; empty if
      #   its lease is begun
      def begin_part(part)
        uuid = nil
        LeaseBegin.new(@connection, part, @client).run do |lease, effect|
          uuid = lease.uuid
          register_settlement(lease, effect)
        end
        @table.insert(uuid, @begun_at) if uuid
        []
      rescue Error::Invalid => error
        LeaseBegin.split(part, error) || raise
      end

      # Registers the settlement before all models, so that the lease is settled before their `after_commit`
      # callbacks run: a callback may change a claim that this lease holds.
      def register_settlement(lease, effect)
        settlement = Settlement.new(@connection, lease.uuid, effect, @backend_pid, client: @client)
        ActiveRecordCompat.add_first_participant(@connection, settlement)
      end
    end
  end
end
