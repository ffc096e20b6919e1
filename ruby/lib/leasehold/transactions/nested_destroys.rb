# frozen_string_literal: true

module Leasehold
  module Transactions
    # Restores nested records that were marked for destruction (`_destroy`) after a rollback.
    #
    # While saving, ActiveRecord removes them from their collection, or sets the owner's foreign key to nil
    # (activerecord 6.1.7.10, autosave_association.rb:503). A rollback undoes neither. Without this class, the
    # next save of the corrected record would silently keep the nested records.
    class NestedDestroys
      include ActiveRecordCompat::Participant

      # Registers the record's associations that hold marked records with the current transaction. Registers
      # nothing if there are none.
      def self.register(record, connection)
        marked = record.class.nested_attributes_options.each_key.filter_map do |name|
          association = record.association(name) if record.association_cached?(name)
          association if Array.wrap(association&.target).any?(&:marked_for_destruction?)
        end
        ActiveRecordCompat.add_participant(connection, new(record, marked)) if marked.any?
      end

      # @param associations [Array] of the record, with targets that are marked for destruction
      def initialize(record, associations)
        @record = record
        collections, singular = associations.partition { |association| association.reflection.collection? }
        @targets = collections.to_h { |association| [association, association.target.dup] }
        belongs_to = singular.map(&:reflection).select(&:belongs_to?)
        # From Rails 7.1 on a foreign key may be a list of columns.
        columns = belongs_to.flat_map { |reflection| Array(reflection.foreign_key) }
        @foreign_keys = columns.to_h { |column| [column, record[column]] }
      end

      # Restores the collections and foreign keys.
      def rolledback!(**)
        @targets.each { |association, target| ActiveRecordCompat.restore_target(association, target) }
        @foreign_keys.each { |name, value| @record[name] = value }
      end

      def commit_lost
        rolledback!
      end
    end
  end
end
