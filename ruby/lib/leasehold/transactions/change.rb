# frozen_string_literal: true

module Leasehold
  module Transactions
    # The claims of one attribute of one row, before and after a save or destroy. A change is a participant
    # of the transaction that wrote the row, so a rolled back savepoint drops its changes.
    class Change
      include ActiveRecordCompat::Participant

      attr_reader :record, :attribute, :before, :after
      # @return [Array] source type, source id and attribute name: equal for all changes of one row and
      #   attribute
      attr_reader :key

      # Registers the changes of a row with the connection's current transaction.
      #
      # @param record [ActiveRecord::Base]
      # @param changes [Array<Array(ClaimedAttribute, Claim, Claim)>] an attribute, the row's claim before
      #   and its claim after; nil for no claim
      def self.register(record, changes, connection = ActiveRecordCompat.held_connection(record.class))
        changes.each do |attribute, before, after|
          ActiveRecordCompat.add_participant(connection, new(record, attribute, before, after))
        end
      end

      def initialize(record, attribute, before, after)
        @record = record
        @attribute = attribute
        claim = after || before
        @key = [claim.source_type, claim.source_id, attribute.name]
        @before = before
        @after = after
        @enrolled = false
      end

      # Returns true if the change is part of an update.
      def enrolled?
        @enrolled
      end

      # Marks the change as part of an update.
      def enroll
        @enrolled = true
      end
    end
  end
end
