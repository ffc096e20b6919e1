# frozen_string_literal: true

module Leasehold
  module Transactions
    # Goes with a save that destroys nested records (`_destroy`). ActiveRecord takes them out of their collection, or their key
    # out of the record, and leaves it so when the transaction is rolled back: what is corrected and saved again would then
    # destroy them no more, and say nothing of it.
    class NestedDestroys
      include Record

      # Keeps where the nested records are that are marked, if there are any, with the present transaction.
      def self.keep(record, connection)
        marked = record.class.nested_attributes_options.each_key.filter_map do |name|
          association = record.association(name) if record.association_cached?(name)
          association if Array.wrap(association&.target).any?(&:marked_for_destruction?)
        end
        connection.add_transaction_record(new(record, marked)) if marked.any?
      end

      # @param associations [Array] of the record, with targets that are marked
      def initialize(record, associations)
        @record = record
        collections, singular = associations.partition { |association| association.reflection.collection? }
        @targets = collections.to_h { |association| [association, association.target.dup] }
        @keys = singular.map(&:reflection).select(&:belongs_to?).to_h { |one| [one.foreign_key, record[one.foreign_key]] }
      end

      # Puts all back.
      def rolledback!(**)
        @targets.each { |association, target| association.target.replace(target) }
        @keys.each { |name, key| @record[name] = key }
      end
    end
  end
end
