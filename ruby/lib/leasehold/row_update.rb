# frozen_string_literal: true

module Leasehold
  # What an UPDATE or a DELETE changes of what its row claims. The row may be of another class of its table (STI) than the
  # instance that writes it, or become one: what it claims is up to the class that it is of, before and after.
  class RowUpdate
    class << self
      # Looks at the row before it is updated.
      #
      # @param written [Array<String>] the columns that will be
      # @param lock [String, false] of {StoredRow}
      # @return [RowUpdate, nil] nil where nothing claimed can change, or the row is gone
      def read(record, written, lock = false)
        touched = record.class.cells_claims_enabled.select { |attribute| attribute.touched_by?(record, written) }
        return if touched.empty? && !other_class_touched?(record.class, written)

        stored = StoredRow.read(record, lock)
        stored && new(record, stored, touched, written)
      end

      # What a row that is about to be deleted gives up.
      #
      # @return [Array<Array(ClaimedAttribute, Claim, nil)>]
      def deletion(record, lock = false)
        attributes = record.class.cells_claims_enabled
        stored = StoredRow.read(record, lock) if attributes.any? || other_classes(record.class).any?
        return of_class(stored.original) { |attribute, row| [attribute.destroyed(row, nil), nil] } if stored&.other_class?

        # Where the row is gone already, the instance alone knows what it claimed.
        attributes.map { |attribute| [attribute, attribute.destroyed(record, stored), nil] }
      end

      # What an INSERT claims.
      #
      # @return [Array<Array(ClaimedAttribute, nil, Claim)>]
      def insertion(record)
        of_class(StoredRow.as_class(record, record.class)) { |attribute, row| [nil, attribute.created(row)] }
      end

      # What each attribute changes that the class of a row claims.
      #
      # @yieldreturn [Array(Claim, Claim)] before and after
      def of_class(row)
        return [] unless row.class.respond_to?(:cells_claims_enabled)

        row.class.cells_claims_enabled.map { |attribute| [attribute, *yield(attribute, row)] }
      end

      private

      # Whether the row is to become one of another class, or what others claim is written.
      def other_class_touched?(model, written)
        others = other_classes(model)
        return others.any? if written.include?(model.inheritance_column)

        others.any? { |other| other.cells_claims_columns.any? { |column| written.include?(column) } }
      end

      # The other classes of the table that claim anything now.
      def other_classes(model)
        return [] unless model.columns_hash.key?(model.inheritance_column)

        Models.of_table(model.base_class).select do |other|
          other != model && other.respond_to?(:cells_claims_attributes) &&
            ClaimedAttribute.enabled(other.cells_claims_attributes).any?
        end
      end
    end

    def initialize(record, stored, touched, written)
      @record = record
      @stored = stored
      @touched = touched
      @written = written
      @reclassified = stored.other_class?(written)
      # Once the row is written, it says something else.
      stored.original if @reclassified || touched.any?(&:conditional?)
      @becomes = stored.instance(written) if @reclassified
    end

    # To be asked for once the row is written.
    #
    # @return [Array<Array(ClaimedAttribute, Claim, Claim)>] an attribute, what the row claimed, and what it claims now
    def changes
      @reclassified ? reclassified : @touched.map { |one| [one, *one.updated(@record, @stored, @written)] }
    end

    private

    def reclassified
      claimed = self.class.of_class(@becomes) { |attribute, row| [nil, attribute.created(row)] }
      given_up(claimed.map(&:last)) + claimed
    end

    # Whatever `if:` says now, as with any update; but where it says that there was no claim, one that is made is no net nothing.
    def given_up(claims)
      self.class.of_class(@stored.original) do |attribute, row|
        held = attribute.held_claim(row)
        [(held unless claims.include?(held) && !attribute.claims?(row)), nil]
      end
    end
  end
end
