# frozen_string_literal: true

module Leasehold
  # The values that a row has in the database, read before a statement writes it. The read takes the
  # statement's lock if the caller names that lock. The instance may have other values: another instance
  # changed the row since it was loaded, or a savepoint in which it was saved was rolled back.
  class StoredRow
    # The lock that a DELETE takes on its row.
    DELETE_LOCK = "FOR UPDATE"

    # Returns the lock that an UPDATE takes on its row (PostgreSQL 15 manual, 13.3.2 Row-Level Locks). A read
    # under this lock costs no further waiting, because the UPDATE needs the lock anyway. A weaker lock could
    # deadlock with a transaction that has inserted a reference to the row and then updates the row.
    #
    # @param columns [Array<String>] the columns that the UPDATE writes
    def self.update_lock(record, columns)
      changed = columns.select { |column| record.will_save_change_to_attribute?(column) }
      key = [record.class.primary_key, *ActiveRecordCompat.unique_columns(record.class)]
      (changed & key).any? ? "FOR UPDATE" : "FOR NO KEY UPDATE"
    end

    # @param lock [String, false] the lock of the statement that is about to write the row; false for none
    # @param whole [Boolean] true if instances of the row are needed; one statement then reads all columns
    # @return [StoredRow, nil] nil if the row does not exist
    def self.read(record, lock: false, whole: false)
      model = record.class
      columns = model.cells_claims_columns | ([model.inheritance_column] & model.column_names)
      return read_whole(record, columns, lock) if whole

      row = model.uncached { rows(record).lock(lock).pluck(*columns).first }
      row && new(record, columns.zip(Array.wrap(row)).to_h)
    end

    # @param columns [Array<String>] the columns that {#to_proc} reads from the row
    # @return [StoredRow, nil]
    def self.read_whole(record, columns, lock)
      raw = read_raw(record, lock) or return
      instance = record.class.base_class.instantiate(raw.dup)
      new(record, columns.to_h { |column| [column, instance._read_attribute(column)] }, raw)
    end

    # @return [Hash{String => Object}, nil] all columns of the row, as the database returns them
    def self.read_raw(record, lock = false)
      connection = ActiveRecordCompat.held_connection(record.class)
      connection.uncached { connection.select_one(rows(record).lock(lock).arel, "Leasehold") }
    end

    # Reads from the base class, because the row may be of another class of the table (STI).
    #
    # @return [ActiveRecord::Relation]
    def self.rows(record)
      record.class.base_class.unscoped.where(record.class.primary_key => record.id_in_database)
    end

    private_class_method :read_whole, :rows

    # Converts the record to the class that its inheritance column names (STI).
    #
    # @param model [Class] the model whose inheritance column is read
    # @return [ActiveRecord::Base] the record itself if it has that class already
    def self.cast(record, model)
      column = model.inheritance_column
      return record unless record.has_attribute?(column) && model.columns_hash.key?(column)

      named = class_of(model, record[column])
      record.instance_of?(named) ? record : record.becomes(named)
    end

    # @return [Class] the class that a value of the inheritance column names
    def self.class_of(model, value)
      value.blank? ? model.base_class : model.base_class.sti_class_for(value)
    end

    # @return [Array<String>] the columns that a save of the record writes
    def self.columns_to_write(record)
      model = record.class
      names = ActiveRecordCompat.partial_updates?(model) ? record.changed_attribute_names_to_save : record.attribute_names
      names - model.readonly_attributes.to_a
    end

    # @param record [ActiveRecord::Base] an instance of the row, possibly with other values
    # @param values [Hash{String => Object}] the row's values by column
    # @param raw [Hash{String => Object}, nil] all columns as the database returned them, if they are read
    def initialize(record, values, raw = nil)
      @record = record
      @values = values
      @raw = raw
    end

    # Returns an instance with the row's values. The first call must come before the row is written.
    def original
      @original ||= build_instance
    end

    # Returns the result of the model's block for the subject's id. The first call must come before the row is
    # written, because the block may query the database.
    def computed_subject
      @computed_subject ||= [original.instance_exec(&@record.class.cells_claims_subject_key)]
      @computed_subject.first
    end

    # Returns true if the row's class (STI) differs from the instance's, before or after the write.
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

    # Builds an instance with the row's values, and the record's own values for the columns to be written.
    #
    # @param written [Array<String>] columns
    # @return [ActiveRecord::Base]
    def build_instance(written = [])
      model = @record.class.base_class
      @raw ||= self.class.read_raw(@record)
      row = model.instantiate(@raw.dup)
      written.each { |column| row[column] = @record[column] }
      written.include?(model.inheritance_column) ? self.class.cast(row, model) : row
    end

    # @return [Proc] reads a column's stored value; a state for {ClaimedAttribute#claim}
    def to_proc
      ->(record, column) { @values.fetch(column) { record.attribute_in_database(column) } }
    end

    # @param columns [Array<String>]
    # @return [Proc] reads a column's value after the record's own values of these columns are written; a
    #   state for {ClaimedAttribute#claim}
    def after_writing(columns)
      ->(record, column) { columns.include?(column) ? record[column] : @values.fetch(column) { record[column] } }
    end
  end
end
