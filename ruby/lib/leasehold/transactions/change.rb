# frozen_string_literal: true

module Leasehold
  module Transactions
    # What one save or destroy did to what a row claims. It goes with the transaction that the row was written in.
    class Change
      include Record

      attr_reader :record, :attribute, :before, :after
      # @return [Array] what changes of one row and attribute share
      attr_reader :key

      # Keeps what has changed of a row with its connection's transaction.
      #
      # @param record [ActiveRecord::Base]
      # @param changes [Array<Array(ClaimedAttribute, Claim, Claim)>] an attribute, what the row claimed, and what it
      #   claims now; nil where it claims nothing
      def self.keep(record, changes, connection = record.class.connection)
        # A callback on its way to COMMIT may change a row after the update was begun, or with none to begin: begin one for it.
        late = Update.begun?(connection.current_transaction) || Update.late?(connection)
        changes.each do |attribute, before, after|
          connection.add_transaction_record(new(connection, record, attribute, before, after))
        end
        Update.begin(connection) if late
      end

      def initialize(connection, record, attribute, before, after)
        @connection = connection
        @record = record
        @attribute = attribute
        claim = after || before
        @key = [claim.source_type, claim.source_id, attribute.name]
        @before = before
        @after = after
        @taken = false
      end

      # Whether an update was begun for it.
      def taken?
        @taken
      end

      # Marks it as part of an update.
      def take
        @taken = true
      end

      # The first of all to be told begins the update for all.
      def before_committed!
        Update.begin(@connection) if !taken? && Record.outermost?(@connection)
      end

      # ActiveRecord takes a savepoint within an unjoinable transaction for the end, but it is not.
      def committed!(**)
        return if taken?
        return @connection.add_transaction_record(self) unless Record.outside?(@connection)

        Events.publish(:unclaimed, record: record.class.name, attribute: attribute.name)
      end
    end
  end
end
