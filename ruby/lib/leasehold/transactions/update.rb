# frozen_string_literal: true

module Leasehold
  module Transactions
    # Begins the one update of a transaction, right before its COMMIT, and writes the lease into the same transaction.
    class Update
      # To destroy what is not ours to destroy is already done: a row that was never claimed, or whose claim has moved on.
      GONE = %w[CLAIM_NOT_FOUND CLAIM_CHANGED NOT_OWNER].freeze

      @begun = ObjectSpace::WeakMap.new
      @ending = ObjectSpace::WeakMap.new

      class << self
        # Begins an update for the changes that the present transaction has gathered and that are in none yet.
        #
        # @raise [ClaimsRejected] a claim was refused, or nobody answered; the transaction is to be rolled back
        def begin(connection)
          Interrupted.unless_thrown_out(-> { Interrupted.roll_back(connection) }) { begin_rest(connection) }
        end

        # Whether that transaction's update has been begun.
        def begun?(transaction)
          @begun.key?(transaction)
        end

        # Notes that the present transaction is at its end: ActiveRecord tells those that it keeps of the COMMIT to come, and
        # none that is added meanwhile.
        def end(connection)
          @ending[connection.current_transaction] = true
        end

        # Whether nobody will begin an update for what is added to the present transaction now.
        def late?(connection)
          transaction = connection.current_transaction
          return false unless @ending.key?(transaction) && Record.outermost?(connection)

          transaction.records.grep(Change).all?(&:taken?)
        end

        # Whether a refused claim is one to destroy that is not there any more.
        #
        # @param rejected [RejectedClaim]
        def gone?(rejected)
          rejected.list == :destroy && GONE.include?(rejected.code)
        end

        private

        def begin_rest(connection)
          transaction = connection.current_transaction
          covered = @begun.key?(transaction) ? [] : transaction.records.grep(Covered)
          @begun[transaction] = true
          changes = transaction.records.grep(Change).reject(&:taken?)
          changes.each(&:take)
          effect = covered.map(&:effect).inject(NetEffect.new(changes)) { |rest, begun| rest.without(begun) }
          new(connection, effect).begin
        end
      end

      def initialize(connection, effect, client: Leasehold.client)
        @connection = connection
        @effect = effect
        @client = client
      end

      # Begins it within the transaction.
      def begin
        begin_effect
        join_lease
      end

      # Begins it before there is a transaction, and leaves it to {join} to tell one. Where a row's claim to give up is not there,
      # nothing is begun before the transaction has locked the row: verification could make that claim in between.
      def begin_early
        @early = true
        begin_effect
      end

      # Makes what was begun early part of the transaction that is open now.
      def join
        return if @put_off

        @connection.add_transaction_record(Covered.new(@connection, @effect))
        join_lease
      end

      private

      def begin_effect
        @rest = @effect
        return if @rest.empty?

        # Before the call, so that the row is never younger than the lease (R04).
        @begun_at, @session = LeaseTable.new(@connection).mark
        @lease = begin_lease
      end

      def join_lease
        return unless @lease

        # A model's `after_commit` may change again what this lease still holds.
        Record.add_first(@connection, Settlement.new(@connection, @lease.uuid, @session))
        LeaseTable.new(@connection).insert(@lease.uuid, @begun_at)
      end

      # @param first [Array(Error, NetEffect), nil] what a first try was refused for, of what
      def begin_lease(first = nil)
        key = SecureRandom.hex
        answered = false
        lease = @client.begin_update(creates: @rest.creates, destroys: @rest.destroys, idempotency_key: key)
        answered = true
        lease
      rescue Error => error
        answered = !Unanswered.covers?(error)
        begin_instead(first, error)
      ensure
        # Also where a timeout, or whatever else came over this thread, has interrupted the call.
        give_up_later(key) unless answered
      end

      # Begins what is left, where that is all right.
      def begin_instead(first, error)
        raise ClaimsRejected.or_same(*(error.temporary? ? [error, @rest] : first)) if first

        return put_off if @early && only_gone?(error)

        refused = [error, @rest]
        rest = only_gone?(error) ? @rest.without_destroys(error.destroy_positions) : @rest.retaken(error)
        raise ClaimsRejected.or_same(*refused) unless rest

        @rest = rest
        begin_lease(only_gone?(error) ? nil : refused) unless rest.empty?
      end

      # Leaves it all to what begins right before COMMIT.
      def put_off
        @put_off = true
        nil
      end

      # Out of the transaction, which is to be rolled back now.
      def give_up_later(key)
        unanswered = Unanswered.new(@client, @rest, key)
        return unanswered.give_up if Record.outside?(@connection)

        Record.add_first(@connection, unanswered)
      end

      def only_gone?(error)
        error.rejected.any? && error.rejected.all? { |claim| Update.gone?(claim) }
      end
    end
  end
end
