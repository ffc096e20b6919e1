# frozen_string_literal: true

module Leasehold
  # The changes of claims that an INSERT, UPDATE or DELETE of one row makes.
  #
  # In single-table inheritance (STI) the row may be of another class than the instance that writes it, or
  # the UPDATE may change the row's class. The claims follow the row's class before and after, not the
  # instance's class.
  class RowUpdate
    class << self
      # Reads the row before its UPDATE.
      #
      # @param written [Array<String>] the columns that the UPDATE writes
      # @param lock [Boolean] true to lock the row as the UPDATE does
      # @return [RowUpdate, nil] nil if no claim can change, or the row does not exist
      def read(record, written, lock: false)
        attributes = record.class.cells_claims_enabled.select { |attribute| attribute.affected_by?(record, written) }
        return if attributes.empty? && !other_class_affected?(record.class, written)

        whole = attributes.any? { |attribute| attribute.reads_any_column?(record.class) }
        stored = StoredRow.read(record, lock: lock && StoredRow.update_lock(record, written), whole: whole)
        stored && new(record, stored, attributes, written)
      end

      # Reads the claims that a DELETE of the row destroys.
      #
      # @return [Array<Array(ClaimedAttribute, Claim, nil)>]
      def deletion(record, lock = false)
        attributes = record.class.cells_claims_enabled
        whole = attributes.any? { |attribute| attribute.reads_any_column?(record.class) }
        stored = StoredRow.read(record, lock: lock, whole: whole) if attributes.any? || other_classes(record.class).any?
        if stored&.other_class?
          return for_row_class(stored.original) { |attribute, row| [attribute.claim_before_delete(row, nil), nil] }
        end

        # `stored` is nil if the row does not exist. The claims are then those of the instance's values.
        attributes.map { |attribute| [attribute, attribute.claim_before_delete(record, stored), nil] }
      end

      # @return [Array<Array(ClaimedAttribute, nil, Claim)>] the claims that an INSERT of the record creates
      def insertion(record)
        for_row_class(StoredRow.cast(record, record.class)) { |attribute, row| [nil, attribute.claim_after_insert(row)] }
      end

      # @yieldparam attribute [ClaimedAttribute] of the row's class
      # @yieldreturn [Array(Claim, Claim)] before and after
      # @return [Array<Array(ClaimedAttribute, Claim, Claim)>] each attribute with the block's claims
      def for_row_class(row)
        return [] unless row.class.respond_to?(:cells_claims_enabled)

        row.class.cells_claims_enabled.map { |attribute| [attribute, *yield(attribute, row)] }
      end

      private

      # Returns true if the UPDATE may change the row's class, or writes a column that another class of the
      # table claims.
      def other_class_affected?(model, written)
        others = other_classes(model)
        return others.any? if written.include?(model.inheritance_column)

        others.any? { |other| other.cells_claims_columns.any? { |column| written.include?(column) } }
      end

      # @return [Array<Class>] the table's other classes with an enabled claim
      def other_classes(model)
        return [] unless model.columns_hash.key?(model.inheritance_column)

        Models.of_table(model.base_class).select do |other|
          other != model && other.respond_to?(:cells_claims_declarations) &&
            ClaimedAttribute.enabled(other.cells_claims_declarations).any?
        end
      end
    end

    # @param attributes [Array<ClaimedAttribute>] those of the instance's class that the UPDATE affects
    def initialize(record, stored, attributes, written)
      @record = record
      @stored = stored
      @attributes = attributes
      @written = written
      @class_changes = stored.other_class?(written)
      # Reads the original row now, because the UPDATE overwrites it.
      stored.original if @class_changes || attributes.any?(&:conditional?)
      stored.computed_subject if attributes.any? && record.class.cells_claims_subject_computed?
      @row_after = stored.build_instance(written) if @class_changes
    end

    # Computes the changes. Must be called after the UPDATE, because `if:` conditions see the record as it
    # was saved.
    #
    # @return [Array<Array(ClaimedAttribute, Claim, Claim)>] an attribute, the row's claim before and its
    #   claim after; nil for no claim
    def changes
      return changes_of_class if @class_changes

      @attributes.map { |attribute| [attribute, *attribute.claims_around_update(@record, @stored, @written)] }
    end

    private

    def changes_of_class
      creates = self.class.for_row_class(@row_after) { |attribute, row| [nil, attribute.claim_after_insert(row)] }
      destroys(creates.map(&:last)) + creates
    end

    # Returns the claims of the old class to destroy. They are destroyed even if `if:` is false for the row now:
    # it may have been true when they were created.
    #
    # One claim is left out: `if:` says that it was never created, and the new class creates it. Its destroy
    # would cancel out that create ({Transactions::NetEffect}).
    def destroys(created)
      self.class.for_row_class(@stored.original) do |attribute, row|
        owned = attribute.owned_claim(row)
        [(owned unless created.include?(owned) && !attribute.claims?(row)), nil]
      end
    end
  end
end
