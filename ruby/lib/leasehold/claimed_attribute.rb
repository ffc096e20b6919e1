# frozen_string_literal: true

module Leasehold
  # One attribute that a model claims: the bucket type of its values, the feature flag, and the condition.
  #
  # Several methods take a state: a Symbol, or an object with `to_proc`, that reads a column's value for a
  # record. {CURRENT} reads the instance, {IN_DATABASE} the value that was loaded, and a {StoredRow} the row
  # itself.
  class ClaimedAttribute
    # Reads the instance's current value.
    CURRENT = :_read_attribute
    # Reads the value that the instance loaded from the database, without later assignments.
    IN_DATABASE = :attribute_in_database

    attr_reader :name, :type, :feature_flag

    # @param type [Integer, Symbol] a member of `CLAIMS_BUCKET_TYPE` or `CLAIMS_CLAIM_TYPE`, which have the same
    #   numbers
    # @param feature_flag [Symbol, nil] nil if the values are always claimed
    # @param condition [Proc, Symbol, nil] decides for a record whether its value is claimed; nil for always
    # @raise [Error::Misconfigured] if the type is unknown
    # @raise [Models::InvalidDeclaration] if the condition is neither a Proc nor a Symbol
    def initialize(name:, type:, feature_flag: nil, condition: nil)
      @name = name.to_s
      types = Cells::Claimable
      named = type.is_a?(Symbol) && types::CLAIMS_CLAIM_TYPE.resolve(type)
      @type = Enumeration.known_number(types::CLAIMS_BUCKET_TYPE, named || type)
      @feature_flag = feature_flag
      @declared_condition = condition
      @condition = condition_proc(condition)
    end

    # @return [Hash{Symbol => Object}] the arguments of the declaration
    def declaration
      { type: type, feature_flag: feature_flag, if: @declared_condition }
    end

    # Selects the attributes whose own flag is on, or that have none; no attribute if the global flag is off.
    #
    # @param attributes [Hash{Symbol => ClaimedAttribute}]
    # @return [Array<ClaimedAttribute>]
    def self.enabled(attributes)
      return [] if attributes.empty? || !flag?(Leasehold.configuration.global_feature_flag)

      attributes.values.keep_if { |attribute| flag?(attribute.feature_flag) }
    end

    # Runs the block, in which each flag is asked at most once by this thread. The validation of a save, its
    # statements and its COMMIT then agree about the attributes that are claimed.
    def self.asking_flags_once
      outer = Thread.current[:leasehold_flags]
      return yield if outer

      begin
        Thread.current[:leasehold_flags] = {}
        yield
      ensure
        Thread.current[:leasehold_flags] = nil
      end
    end

    # Returns true if the feature flag is on, or if there is none.
    #
    # @param flag [Symbol, nil]
    def self.flag?(flag)
      return true if flag.nil?

      answers = Thread.current[:leasehold_flags] or return Leasehold.configuration.feature_enabled?(flag)

      answers.fetch(flag) { answers[flag] = Leasehold.configuration.feature_enabled?(flag) }
    end

    # Returns the text to claim for a value. Until Rails 7.0, `Date#to_s` follows `Date::DATE_FORMATS[:default]`
    # (activesupport 6.1.7.10, core_ext/date/conversions.rb:47), which an application may change at any time: the
    # claims of all rows would then differ.
    #
    # @return [String]
    def self.text(value)
      value.is_a?(Date) ? value.iso8601 : value.to_s
    end

    # Returns true if the value is never claimed: nil, or a text of white space only.
    def self.blank?(value)
      return value.nil? unless value.is_a?(String)

      # `String#blank?` raises for bytes that are no characters.
      value.valid_encoding? && value.blank?
    end

    # Returns true if both the global flag and the attribute's own flag are on. A flag that is nil counts as on.
    def enabled?
      self.class.flag?(Leasehold.configuration.global_feature_flag) && self.class.flag?(feature_flag)
    end

    # Returns true if the condition allows a claim for the record.
    def claims?(record)
      @condition.nil? || @condition.call(record) ? true : false
    end

    # Returns true if the attribute has a condition (`if:`).
    def conditional?
      !@condition.nil?
    end

    # Returns true if the claim may depend on any column of the row: by the condition, or by the block that
    # computes the subject.
    def reads_any_column?(model)
      conditional? || model.cells_claims_subject_computed?
    end

    # Returns true if the bucket type's rule allows the value.
    def allows?(value)
      Native.canonical_form(type, self.class.text(value))
      true
    rescue Error::Invalid, EncodingError
      false
    end

    # Returns true if an UPDATE of these columns may change the claim.
    #
    # @param written [Array<String>] columns
    def affected_by?(record, written)
      reads_any_column?(record.class) || writes_claim_column?(record, written)
    end

    # @return [Claim, nil] the claim that the INSERT of the record creates
    def claim_after_insert(record)
      new_claim(record) if claims?(record)
    end

    # Computes the row's claims before and after an UPDATE. The old claim is destroyed even if the condition
    # is false for the row now: it may have been true when the claim was created.
    #
    # @param stored [StoredRow] the row before the UPDATE
    # @param written [Array<String>] columns
    # @return [Array(Claim, Claim)] before and after; nil for no claim
    def claims_around_update(record, stored, written)
      # Blocks may read columns that the instance was not loaded with.
      whole = reads_any_column?(record.class) && partially_loaded?(record) ? stored.build_instance(written) : record
      return claims_around_condition(whole, stored, written) if conditional? && !claim_changes?(whole, stored, written)

      [owned_claim(record, stored), (new_claim(whole, stored.after_writing(written)) if claims?(whole))]
    end

    # Computes the claim that the DELETE of the record destroys. The condition sees the stored row: values
    # that were assigned to the instance and not saved were never claimed.
    #
    # @param stored [StoredRow, nil] the row before the DELETE; nil if it does not exist
    # @return [Claim, nil]
    def claim_before_delete(record, stored)
      owned_claim(record, stored || IN_DATABASE) if claims?(stored && conditional? ? stored.build_instance : record)
    end

    # Builds the claim to create for the record.
    #
    # @param state [#to_proc] reads the values that the record has after it is saved
    # @raise [Error::Invalid] if the record has no subject id of 1 or more
    # @return [Claim, nil] nil if the value is blank
    def new_claim(record, state = CURRENT)
      claim = claim(record, state)
      return claim if claim.nil? || claim.subject_id&.positive?

      raise Error::Invalid.new(
        "#{subject_name(record.class)} is #{claim.subject_id.inspect}: `#{name}` can only be claimed for a subject id of 1 or more",
        code: "INVALID_UPDATE"
      )
    end

    # Builds the claim of the record in a state.
    #
    # @param state [#to_proc] {CURRENT}, {IN_DATABASE} or a {StoredRow}
    # @raise [Error::Invalid] if the primary key has no source id
    # @return [Claim, nil] nil if the value is blank
    def claim(record, state = CURRENT)
      value = read(record, state, name)
      return if self.class.blank?(value)

      table = record.class.cells_claims_table
      Claim.new(
        bucket_type: type, bucket_value: self.class.text(value),
        subject_type: table.subject_type, subject_id: subject_id(record, state, table),
        source_type: table.source_type, source_id: table.source_key.encode(read(record, state, table.primary_key))
      )
    end

    # Builds the claim that this cell may own for the record in a state.
    #
    # @return [Claim, nil] nil also if the primary key has no source id, since no such claim can be created
    def owned_claim(record, state = CURRENT)
      claim(record, state)
    rescue Error::Invalid
      nil
    end

    private

    # Accepts the forms that callbacks of Rails accept: a method name, a block with the record as argument,
    # or a block evaluated in the record.
    def condition_proc(condition)
      case condition
      when nil then nil
      when Symbol then ->(record) { record.send(condition) }
      when Proc then condition.arity.zero? ? ->(record) { record.instance_exec(&condition) } : condition
      else raise Models::InvalidDeclaration, "`if:` of `#{name}` is `#{condition.inspect}`: it must be a Proc/lambda or nil, or a method's name as a Symbol"
      end
    end

    def writes_claim_column?(record, written)
      claim_columns(record).any? { |column| written.include?(column) }
    end

    # Returns true if the UPDATE changes a value from which the claim is built. Compares values instead of
    # column names, because a model without partial writes writes all of its columns.
    def claim_changes?(record, stored, written)
      after = stored.after_writing(written)
      claim_columns(record).any? { |column| read(record, stored, column) != read(record, after, column) } ||
        subject_changes?(record, stored, after)
    end

    # Returns true if the block that computes the subject has another result after the UPDATE.
    def subject_changes?(record, stored, after)
      record.class.cells_claims_subject_computed? && computed_subject(record, stored) != computed_subject(record, after)
    end

    # Computes the claims before and after an UPDATE that changes no column of the claim, only the result of
    # the condition.
    def claims_around_condition(record, stored, written)
      before, after = [stored.original, stored.build_instance(written)].map { |instance| claims?(instance) }
      return [nil, nil] if before == after

      before ? [owned_claim(record, stored), nil] : [nil, new_claim(record, stored.after_writing(written))]
    end

    def subject_id(record, state, table)
      id = table.subject_key.is_a?(Proc) ? computed_subject(record, state) : read_subject(record, state, table)
      return id if id.nil? || id.is_a?(Integer)

      raise Error::Misconfigured, "#{subject_name(record.class)} is of class #{id.class}: name a `subject_key` that returns an Integer"
    end

    def read_subject(record, state, table)
      key = table.subject_key.to_s
      # If the subject key is a method, not a column, only its current result can be read.
      table.subject_column? || record.has_attribute?(key) ? read(record, state, key) : record.public_send(key)
    end

    def computed_subject(record, state)
      state.is_a?(StoredRow) ? state.computed_subject : record.instance_exec(&record.class.cells_claims_subject_key)
    end

    # @return [String] the name of the subject's id, for a message
    def subject_name(model)
      key = model.cells_claims_subject_key
      key.is_a?(Proc) ? "the `subject_key` of `#{model}`" : "`#{model}##{key}`"
    end

    # Returns true if the record was loaded with some of its columns only (`select`).
    def partially_loaded?(record)
      !record.class.column_names.all? { |column| record.has_attribute?(column) }
    end

    # @return [Array<String>] the columns from which the claim is built
    def claim_columns(record)
      model = record.class
      subject = model.cells_claims_subject_key
      columns = [name, model.primary_key]
      columns << subject.to_s if subject.is_a?(Symbol)
      columns.select { |column| column?(record, column) }
    end

    def read(record, state, column)
      state.is_a?(Symbol) ? record.public_send(state, column) : state.to_proc.call(record, column)
    end

    # Asks the table first: a partially loaded record lacks attributes for some of the columns.
    def column?(record, name)
      record.class.columns_hash.key?(name) || record.has_attribute?(name)
    end
  end
end
