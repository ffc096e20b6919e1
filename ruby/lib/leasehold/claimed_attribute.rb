# frozen_string_literal: true

module Leasehold
  # One attribute that a model claims: which bucket type its values go into, and when.
  class ClaimedAttribute
    # The row as it is now.
    PRESENT = ->(record, name) { record.has_attribute?(name) ? record[name] : record.public_send(name) }
    # The row before the save that has just been done.
    BEFORE_SAVE = ->(record, name) { record.has_attribute?(name) ? record.attribute_before_last_save(name) : record.public_send(name) }
    # The row as the database has it, whatever was assigned since.
    STORED = ->(record, name) { record.has_attribute?(name) ? record.attribute_in_database(name) : record.public_send(name) }

    # The flag above all models' own.
    GLOBAL_FLAG = :cells_unique_claims

    attr_reader :name, :type, :feature_flag

    # @param condition [Proc, nil] which records' values are claimed; all where there is none
    def initialize(name:, type:, feature_flag:, condition: nil)
      @name = name.to_s
      @type = type
      @feature_flag = feature_flag
      @condition = condition
    end

    # Whether both the global flag and the attribute's own are on.
    def enabled?
      Leasehold.configuration.feature_enabled?(GLOBAL_FLAG) && Leasehold.configuration.feature_enabled?(feature_flag)
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
    rescue Error::Invalid
      false
    end

    # Whether the save just done has changed what is claimed: the value, its subject or its row.
    def touched_by_save?(record)
      [name, record.class.cells_claims_subject_key, record.class.primary_key].any? do |column|
        record.has_attribute?(column) && record.saved_change_to_attribute?(column)
      end
    end

    # What saving or destroying the record will change: the claim before, and after.
    #
    # @return [Array(Claim, Claim)] nil where there is none
    def pending(record, destroyed:)
      after = claim(record) if claims?(record) && !destroyed
      return [nil, after] if record.new_record?
      return [(claim(record, STORED) if claims?(record)), nil] if destroyed

      [name, record.class.cells_claims_subject_key].any? { |column| record.has_attribute?(column) && record.will_save_change_to_attribute?(column) } ? [claim(record, STORED), after] : []
    end

    # The claim that belongs to the record in one of its states; none for a value that is not there.
    #
    # @return [Claim, nil]
    def claim(record, state = PRESENT)
      value = state.call(record, name)
      return if value.nil?

      model = record.class
      key = state.call(record, model.primary_key)
      Claim.new(bucket_type: type, bucket_value: value.to_s,
                subject_type: model.cells_claims_subject_type, subject_id: state.call(record, model.cells_claims_subject_key),
                source_type: model.cells_claims_source_type, source_id: SourceKey.encode(key))
    end
  end
end
