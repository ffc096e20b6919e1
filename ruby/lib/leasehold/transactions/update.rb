# frozen_string_literal: true

module Leasehold
  module Transactions
    # Begins the one update of a transaction, right before its COMMIT, and writes the lease into the same transaction.
    class Update
      # To destroy what is not ours to destroy is already done: a row that was never claimed, or whose claim has moved on.
      GONE = %w[CLAIM_NOT_FOUND CLAIM_CHANGED NOT_OWNER].freeze

      @begun = ObjectSpace::WeakMap.new

      class << self
        # Begins an update for the changes that the present transaction has gathered and that are in none yet.
        #
        # @raise [ClaimsRejected] a claim was refused, or nobody answered; the transaction is to be rolled back
        def begin(connection)
          transaction = connection.current_transaction
          @begun[transaction] = true
          changes = transaction.records.grep(Change).reject(&:taken?)
          changes.each(&:take)
          new(connection, NetEffect.new(changes)).begin
        end

        # Whether that transaction's update has been begun.
        def begun?(transaction)
          @begun.key?(transaction)
        end
      end

      def initialize(connection, effect, client: Leasehold.client)
        @connection = connection
        @effect = effect
        @client = client
      end

      # Begins it, unless there is nothing to do.
      def begin
        return if @effect.empty?

        table = LeaseTable.new(@connection)
        # Before the call, so that the row is never younger than the lease (R04).
        begun_at = table.clock
        lease = begin_lease or return
        @connection.add_transaction_record(Settlement.new(@connection, lease.uuid))
        table.insert(lease.uuid, begun_at)
      end

      private

      def begin_lease
        @client.begin_update(creates: @effect.creates, destroys: @effect.destroys)
      rescue Error => error
        raise ClaimsRejected.or_same(error, @effect) unless only_gone?(error)

        @effect = @effect.without_destroys(error.destroy_positions)
        @effect.empty? ? nil : retry
      end

      def only_gone?(error)
        error.rejected.any? && error.rejected.all? { |claim| claim.list == :destroy && GONE.include?(claim.code) }
      end
    end
  end
end
