# frozen_string_literal: true

module Leasehold
  # What a row says, read under the lock of the statement that is about to write it. An instance may remember something
  # else: it was read before another one changed the row, or a savepoint that it was saved in was rolled back.
  class StoredRow
    # The lock that an UPDATE takes anyway.
    UPDATE = "FOR NO KEY UPDATE"
    # The lock that a DELETE takes anyway.
    DELETE = "FOR UPDATE"

    # @param lock [String, false] {UPDATE} or {DELETE}; none where the row is only looked at
    # @return [StoredRow, nil] nil where the row is gone
    def self.read(record, lock = false)
      model = record.class
      columns = model.cells_claims_columns | ([model.inheritance_column] & model.column_names)
      # Of whichever class (STI) it is, which may be about to change.
      rows = model.base_class.unscoped.where(model.primary_key => record.id_in_database).lock(lock)
      row = model.uncached { rows.pluck(*columns).first }
      row && new(record, columns.zip(Array.wrap(row)).to_h)
    end

    # The record as one of the class that its row is of (STI), by what a column of its table says.
    #
    # @param model [Class] what it is otherwise
    def self.as_class(record, model)
      column = model.inheritance_column
      return record unless record.has_attribute?(column) && model.columns_hash.key?(column)

      named = class_of(model, record[column])
      record.instance_of?(named) ? record : record.becomes(named)
    end

    # The class that a value of the inheritance column stands for.
    def self.class_of(model, value)
      value.blank? ? model.base_class : model.base_class.sti_class_for(value)
    end

    # The columns that saving a record will write.
    #
    # @return [Array<String>]
    def self.to_write(record)
      model = record.class
      # Rails has renamed it.
      partial = model.respond_to?(:partial_updates) ? model.partial_updates : model.partial_writes
      names = partial ? record.changed_attribute_names_to_save : record.attribute_names
      names - model.readonly_attributes.to_a
    end

    # @param record [ActiveRecord::Base] an instance of the row, which may say something else
    # @param values [Hash{String => Object}] by column
    def initialize(record, values)
      @record = record
      @values = values
    end

    # An instance that says what the row says; to be asked for before the row is written.
    def original
      @original ||= instance
    end

    # Whether the row is of another class (STI) than the instance, or will be.
    #
    # @param written [Array<String>] columns that the instance is about to write
    def other_class?(written = [])
      model = @record.class
      column = model.inheritance_column
      return false unless @values.key?(column)

      types = [@values[column]]
      types << @record[column] if written.include?(column)
      types.any? { |value| self.class.class_of(model, value) != model }
    end

    # An instance that says what the row says, with values of the other one's for what that is about to write.
    #
    # @param written [Array<String>] columns
    # @return [ActiveRecord::Base]
    def instance(written = [])
      model = @record.class.base_class
      row = model.uncached { model.unscoped.find_by!(model.primary_key => @record.id_in_database) }
      written.each { |column| row[column] = @record[column] }
      written.include?(model.inheritance_column) ? self.class.as_class(row, model) : row
    end

    # Reads a column, as one of a record's states does; see {ClaimedAttribute#claim}.
    def to_proc
      ->(record, column) { @values.fetch(column) { record.attribute_in_database(column) } }
    end

    # Reads a column as it is once the record's own values of some columns are written.
    #
    # @param columns [Array<String>]
    # @return [Proc] a state, as this is one
    def written(columns)
      ->(record, column) { columns.include?(column) ? record[column] : @values.fetch(column) { record[column] } }
    end
  end
end
