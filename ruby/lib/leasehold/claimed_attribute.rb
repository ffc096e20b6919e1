# frozen_string_literal: true

module Leasehold
  # One attribute that a model claims: which bucket type its values go into, and when.
  class ClaimedAttribute
    # The row as it is now.
    PRESENT = :_read_attribute
    # The row as the database has it, whatever was assigned since.
    STORED = :attribute_in_database

    # The flag above all models' own.
    GLOBAL_FLAG = :cells_unique_claims

    attr_reader :name, :type, :feature_flag

    # @param condition [Proc, Symbol, nil] which records' values are claimed; all where there is none
    # @raise [Error::Misconfigured] one of them can't be what it is
    def initialize(name:, type:, feature_flag:, condition: nil)
      @name = name.to_s
      @type = Enumeration.known_number(Cells::Claimable::CLAIMS_BUCKET_TYPE, type)
      @feature_flag = feature_flag || raise(Error::Misconfigured, "`feature_flag:` of `#{name}` is `nil`: name a flag by a Symbol")
      @condition = asking(condition)
    end

    # Those of some attributes whose own flags are on, unless the global one is off.
    #
    # @param attributes [Hash{Symbol => ClaimedAttribute}]
    # @return [Array<ClaimedAttribute>]
    def self.enabled(attributes)
      settings = Leasehold.configuration
      return [] if attributes.empty? || !settings.feature_enabled?(GLOBAL_FLAG)

      attributes.values.keep_if { |attribute| settings.feature_enabled?(attribute.feature_flag) }
    end

    # Whether both the global flag and the attribute's own are on.
    def enabled?
      settings = Leasehold.configuration
      settings.feature_enabled?(GLOBAL_FLAG) && settings.feature_enabled?(feature_flag)
    end

    # Whether the record's value is one to claim.
    def claims?(record)
      @condition.nil? || @condition.call(record) ? true : false
    end

    # Whether some records' values are not to be claimed.
    def conditional?
      !@condition.nil?
    end

    # Whether the bucket type's rule allows the value.
    def allows?(value)
      Native.canonical_form(type, value.to_s)
      true
    rescue Error::Invalid, EncodingError
      false
    end

    # Whether writing these columns can change what is claimed: the value, its subject or its row; or whatever `if:` looks
    # at.
    #
    # @param written [Array<String>] columns
    def touched_by?(record, written)
      conditional? || moved_by?(record, written)
    end

    # What an INSERT of the record claims.
    #
    # @return [Claim, nil]
    def created(record)
      new_claim(record) if claims?(record)
    end

    # What an UPDATE of the record changes. What was there before goes whatever `if:` says now: it may have said otherwise
    # then.
    #
    # @param stored [StoredRow] before it
    # @param written [Array<String>] columns
    # @return [Array(Claim, Claim)] before and after; nil where there is none
    def updated(record, stored, written)
      return reconsidered(record, stored, written) if conditional? && !moved?(record, stored, written)

      claimed = conditional? && partial?(record) ? claims?(stored.instance(written)) : claims?(record)
      [held_claim(record, stored), (new_claim(record, stored.written(written)) if claimed)]
    end

    # What a DELETE of the record gives up. `if:` is asked about the row: what was assigned since was never claimed.
    #
    # @param stored [StoredRow, nil] before it; nil where it was gone already
    # @return [Claim, nil]
    def destroyed(record, stored)
      held_claim(record, stored || STORED) if claims?(stored && conditional? ? stored.instance : record)
    end

    # The claim to make for the record; none for a value that is not there.
    #
    # @param state [#to_proc] of the record after it is saved
    # @raise [Error::Invalid] there is nobody whom it could be for
    # @return [Claim, nil]
    def new_claim(record, state = PRESENT)
      claim = claim(record, state)
      return claim if claim.nil? || claim.subject_id&.positive?

      key = record.class.cells_claims_subject_key
      raise Error::Invalid.new(
        "`#{record.class}##{key}` is #{claim.subject_id.inspect}: `#{name}` is claimed for an id of 1 or more",
        code: "INVALID_UPDATE"
      )
    end

    # The claim that belongs to the record in one of its states; none for a value that is not there.
    #
    # @param state [#to_proc] reads a column of the record: {PRESENT}, {STORED} or a {StoredRow}
    # @return [Claim, nil]
    def claim(record, state = PRESENT)
      value = stored(record, state, name)
      return if value.nil?

      table = record.class.cells_claims_table
      Claim.new(
        bucket_type: type, bucket_value: value.to_s,
        subject_type: table.subject_type, subject_id: subject_id(record, state, table),
        source_type: table.source_type, source_id: table.source_key.encode(stored(record, state, table.primary_key))
      )
    end

    # The claim that may be held for the record in one of its states: none was ever made for a key that has no bytes.
    #
    # @return [Claim, nil]
    def held_claim(record, state = PRESENT)
      claim(record, state)
    rescue Error::Invalid
      nil
    end

    private

    # As with Rails' callbacks: a method, or a block that is given the record, or is the record's own.
    def asking(condition)
      case condition
      when nil then nil
      when Symbol then ->(record) { record.send(condition) }
      when Proc then condition.arity.zero? ? ->(record) { record.instance_exec(&condition) } : condition
      else raise Error::Misconfigured, "`if:` of `#{name}` is `#{condition.inspect}`: say a block, or a method by a Symbol"
      end
    end

    def moved_by?(record, written)
      columns(record).any? { |column| written.include?(column) }
    end

    # Whether what is claimed differs; that it is written says little where models write all columns.
    def moved?(record, stored, written)
      after = stored.written(written)
      columns(record).any? { |column| stored(record, stored, column) != stored(record, after, column) }
    end

    # What comes of an `if:` that says something else than before, where nothing that is claimed has changed.
    def reconsidered(record, stored, written)
      was, is = [stored.original, stored.instance(written)].map { |instance| claims?(instance) }
      return [nil, nil] if was == is

      was ? [held_claim(record, stored), nil] : [nil, new_claim(record, stored.written(written))]
    end

    def subject_id(record, state, table)
      key = table.subject_key
      # What is no column has no earlier states.
      id = table.subject_column? || record.has_attribute?(key) ? stored(record, state, key) : record.public_send(key)
      return id if id.nil? || id.is_a?(Integer)

      raise Error::Misconfigured, "`#{record.class}##{key}` is a #{id.class}: name a `subject_key` that is an integer"
    end

    # Whether the record was read with some of its columns only.
    def partial?(record)
      !record.class.column_names.all? { |column| record.has_attribute?(column) }
    end

    # The columns that the claim is made of.
    def columns(record)
      model = record.class
      [name, model.cells_claims_subject_key, model.primary_key].select { |column| column?(record, column) }
    end

    def stored(record, state, column)
      state.is_a?(Symbol) ? record.public_send(state, column) : state.to_proc.call(record, column)
    end

    # Where the record was read without a column, it is one nevertheless.
    def column?(record, name)
      record.class.columns_hash.key?(name) || record.has_attribute?(name)
    end
  end
end
