# frozen_string_literal: true

require "active_support/concern"

module Cells
  # Makes attributes of a model unique across all cells.
  #
  #     class User < ApplicationRecord
  #       include Cells::Claimable
  #       cells_claims_attribute :username, type: CLAIMS_BUCKET_TYPE::USERNAMES, feature_flag: :cells_claims_users
  #       cells_claims_metadata subject_type: CLAIMS_SUBJECT_TYPE::USER, subject_key: :id
  #     end
  #
  # Values that another cell holds become validation errors. What bypasses callbacks goes through {BulkClaimsWorker}.
  module Claimable
    extend ActiveSupport::Concern

    CLAIMS_BUCKET_TYPE = Gitlab::Cells::TopologyService::Claims::V1::Bucket::Type
    CLAIMS_SUBJECT_TYPE = Gitlab::Cells::TopologyService::Claims::V1::Subject::Type
    CLAIMS_SOURCE_TYPE = Gitlab::Cells::TopologyService::Claims::V1::Source::Type
    # Claims in one job of {BulkClaimsWorker}.
    BULK_CLAIMS_BATCH_SIZE = 1000

    included do
      class_attribute :cells_claims_attributes, instance_accessor: false, default: {}.freeze
      class_attribute :cells_claims_told, :cells_claims_scope_block, instance_accessor: false

      validate :cells_claims_validate_values
    end

    class_methods do
      # Claims an attribute's values.
      #
      # @param name [Symbol] a column
      # @param type [Integer, Symbol] of {CLAIMS_BUCKET_TYPE}
      # @param feature_flag [Symbol] claims only while this flag is on
      # @param if [Proc, Symbol] given the record, or its own, or a method of it, says whether its value is one to claim
      # @raise [Leasehold::Error::Misconfigured] one of them can't be what it is
      def cells_claims_attribute(name, type:, feature_flag:, if: nil)
        condition = binding.local_variable_get(:if)
        attribute = Leasehold::ClaimedAttribute.new(
          name: name, type: type, feature_flag: feature_flag, condition: condition
        )
        self.cells_claims_attributes = cells_claims_attributes.merge(name.to_sym => attribute).freeze
        Leasehold::Models.add(self)
      end

      # Says whom the claims are for, and which table the rows are in.
      #
      # @param subject_type [Integer, Symbol] of {CLAIMS_SUBJECT_TYPE}
      # @param subject_key [Symbol] the column, or method, with the subject's id
      # @param source_type [Integer, Symbol, nil] of {CLAIMS_SOURCE_TYPE}; inferred from the table's name
      def cells_claims_metadata(subject_type:, subject_key:, source_type: nil)
        self.cells_claims_told = {
          subject_type: Leasehold::Enumeration.number(CLAIMS_SUBJECT_TYPE, subject_type), subject_key: subject_key.to_s,
          source_type: source_type && Leasehold::Enumeration.number(CLAIMS_SOURCE_TYPE, source_type)
        }.freeze
      end

      # The kind of what the claims are for.
      #
      # @raise [Leasehold::Error::Misconfigured] nobody has said
      # @return [Integer]
      def cells_claims_subject_type
        cells_claims_told_or_missing.fetch(:subject_type)
      end

      # The column, or method, with the id of what the claims are for.
      #
      # @raise [Leasehold::Error::Misconfigured] nobody has said
      # @return [String]
      def cells_claims_subject_key
        cells_claims_told_or_missing.fetch(:subject_key)
      end

      # Says which rows verification looks at, by a block that returns a relation; all without one.
      def cells_claims_scope(&block)
        return self.cells_claims_scope_block = block if block

        # A default scope hides rows; their names are still theirs.
        cells_claims_scope_block ? unscoped.instance_exec(&cells_claims_scope_block) : unscoped
      end

      # The table, as claims name it.
      #
      # @raise [Leasehold::Error::Misconfigured] the contract has no number for the table
      def cells_claims_source_type
        told = cells_claims_told_or_missing
        told.fetch(:source_type) || Leasehold::ClaimedTable.source_type(table_name)
      end

      # What the claims of all its rows share.
      #
      # @raise [Leasehold::Error::Misconfigured] nobody has said, or the contract has no number for the table
      # @return [Leasehold::ClaimedTable]
      def cells_claims_table
        told = cells_claims_told_or_missing
        columns = columns_hash
        return @cells_claims_table if @cells_claims_table&.of?(told, columns)

        @cells_claims_table = Leasehold::ClaimedTable.new(self, told, columns)
      end

      # The columns that claims are made of.
      #
      # @return [Array<String>]
      def cells_claims_columns
        claimed = [cells_claims_subject_key, *cells_claims_attributes.each_value.map(&:name)] if cells_claims_attributes.any?
        [primary_key, *claimed].uniq & column_names
      end

      # Whether the attribute is claimed now.
      def cells_claims_enabled_for_attribute?(name)
        cells_claims_attributes[name.to_sym]&.enabled? || false
      end

      # The attributes that are claimed now.
      #
      # @raise [Leasehold::Error::Misconfigured] the table can't have what the model says
      # @return [Array<Leasehold::ClaimedAttribute>]
      def cells_claims_enabled
        attributes = cells_claims_attributes
        enabled = Leasehold::ClaimedAttribute.enabled(attributes)
        return enabled if enabled.empty? || cells_claims_checked?(attributes, columns_hash)

        cells_claims_check_subject
        attributes.each_value { |attribute| cells_claims_check(attribute) }
        @cells_claims_checked = [attributes, columns_hash]
        enabled
      end

      private

      # Whether it is this that was checked: columns may be renamed while a process runs.
      def cells_claims_checked?(attributes, columns)
        @cells_claims_checked && @cells_claims_checked[0].equal?(attributes) && @cells_claims_checked[1].equal?(columns)
      end

      def cells_claims_check_subject
        key = cells_claims_subject_key
        return if attribute_names.include?(key) || method_defined?(key)

        raise Leasehold::Error::Misconfigured,
              "`#{name}##{key}` is neither a column nor a method: name a `subject_key` that is one"
      end

      # Claims name rows by their keys, and are read off columns.
      def cells_claims_check(attribute)
        cells_claims_check_key
        column = columns_hash[attribute.name]
        return cells_claims_check_type(column) if column

        meant = attribute_aliases[attribute.name]
        raise Leasehold::Error::Misconfigured,
              "`#{name}##{attribute.name}` is no column of `#{table_name}`: claim #{meant ? "`#{meant}`" : "a column"}"
      end

      # Before Rails 7.1 a key of several columns is none to ActiveRecord.
      def cells_claims_check_key
        return cells_claims_check_key_type if primary_key.is_a?(String)

        columns = connection.primary_keys(table_name)
        has = columns.many? ? "a primary key of #{columns.map { |column| "`#{column}`" }.join(', ')}" : "no primary key"
        raise Leasehold::Error::Misconfigured, "`#{name}` has #{has}: claims need one of one column"
      end

      # Verification reads rows in the order of their keys' bytes, which the database has for these types alone.
      def cells_claims_check_key_type
        column = columns_hash[primary_key]
        return if column.nil? || Leasehold::ColumnTypes.key?(self, column)

        raise Leasehold::Error::Misconfigured,
              "`#{name}##{primary_key}` is a `#{column.sql_type}`: claims need a key that is a whole number, a UUID or a text"
      end

      # Saves claim what was written; the next save, and verification, look at what is read.
      def cells_claims_check_type(column)
        return if Leasehold::ColumnTypes.value?(self, column)

        raise Leasehold::Error::Misconfigured,
              "`#{name}##{column.name}` is a `#{column.sql_type}`, which may not read as it was written: " \
              "claim a `text` or a `character varying`"
      end

      def cells_claims_told_or_missing
        cells_claims_told || raise(
          Leasehold::Error::Misconfigured,
          "`#{name}` does not say whom its claims are for: add `cells_claims_metadata subject_type: …, subject_key: …`"
        )
      end
    end

    # Saves; false, with errors, where claims were refused.
    def save(**)
      cells_claims_rejection_as(->(_rejected) { false }) { super }
    end

    # Saves, or raises: {Leasehold::ClaimsRejected}, an `ActiveRecord::RecordInvalid`, where claims were refused.
    def save!(**)
      cells_claims_rejection_as(->(rejected) { raise rejected }) { super }
    end

    # Assigns and saves; false, with errors, where claims were refused.
    def update(*)
      cells_claims_rejection_as(->(_rejected) { false }) { super }
    end

    # Assigns and saves, or raises as {#save!} does.
    def update!(*)
      cells_claims_rejection_as(->(rejected) { raise rejected }) { super }
    end

    # Destroys; false, with errors, where claims were refused.
    def destroy
      cells_claims_rejection_as(->(_rejected) { false }) { super }
    end

    # What the row claims as it is now.
    #
    # @return [Array<Leasehold::Claim>]
    def cells_claims_metadata
      cells_claims_enabled.filter_map { |attribute| attribute.claim(self) if attribute.claims?(self) }
    end

    # What a job needs to give up the claim after the row is gone.
    #
    # @return [Hash{String => Object}, nil] plain values; nil where the value is not claimed
    def build_destroy_metadata_for_worker(name)
      attribute = self.class.cells_claims_attributes[Leasehold::Models.attribute(self.class, name)]
      return unless attribute&.enabled? && attribute.claims?(self)

      claim = attribute.claim(self, Leasehold::ClaimedAttribute::STORED) or return
      claim.to_h.stringify_keys.merge("source_id" => claim.source_id.unpack1("H*"))
    end

    # Whether the attribute is claimed now.
    def cells_claims_enabled_for_attribute?(name)
      self.class.cells_claims_enabled_for_attribute?(name)
    end

    private

    def cells_claims_enabled
      self.class.cells_claims_enabled
    end

    # A refusal comes with the end of the outermost transaction. Nothing may swallow it before: what was written would be
    # committed without its claims.
    def cells_claims_rejection_as(outcome)
      outermost = Leasehold::Transactions::Record.outside?(self.class.connection)
      yield
    rescue Leasehold::ClaimsRejected => rejected
      raise unless outermost

      outcome.call(rejected.seen_from(self))
    end

    # The rules of values need no server, so they are ordinary validations.
    def cells_claims_validate_values
      cells_claims_enabled.each do |attribute|
        value = _read_attribute(attribute.name)
        next if value.nil? || !(new_record? || will_save_change_to_attribute?(attribute.name)) || !attribute.claims?(self)

        errors.add(attribute.name, :invalid, value: value) unless attribute.allows?(value)
      end
    end

    # What ActiveRecord calls where it writes a row, between all callbacks before and after: by then everything is assigned,
    # and nothing that saves or reloads the record again has run yet. All of it is called alike from Rails 6.1 to 7.2.

    # The block is called right after an INSERT, or after {#_update_row}.
    def create_or_update(**options, &block)
      cells_claims_whole do |connection|
        Leasehold::Transactions::NestedDestroys.keep(self, connection) if self.class.nested_attributes_options.any?
        super(**options) do |record|
          cells_claims_keep_created(connection) if previously_new_record?
          block&.call(record)
        end
      end
    end

    def _update_row(attribute_names, *)
      # Optimistic locking adds to the names.
      update = Leasehold::RowUpdate.read(self, attribute_names.dup, Leasehold::StoredRow::UPDATE)
      return super unless update

      cells_claims_whole(claimed: true) { super }.tap { |rows| cells_claims_keep(update.changes) if rows.positive? }
    end

    def destroy_row
      given_up = Leasehold::RowUpdate.deletion(self, Leasehold::StoredRow::DELETE)
      cells_claims_whole(claimed: given_up.any?) { super }.tap { cells_claims_keep(given_up) }
    end

    # Nothing of what is thrown out of may be committed: a row would be written without its claims.
    #
    # @param claimed [Boolean] whether the row claims anything, or may
    # @yieldparam connection the one that the row is written over, since to ask for it is dear
    def cells_claims_whole(claimed: self.class.cells_claims_attributes.any?)
      connection = self.class.connection
      return yield connection unless claimed

      Leasehold::Transactions::Interrupted.refused_if_thrown_out(connection) { yield connection }
    end

    def cells_claims_keep_created(connection)
      cells_claims_keep(Leasehold::RowUpdate.insertion(self), connection)
    end

    # A row that gets another primary key is, for claims, one that goes and one that comes.
    def cells_claims_keep(changes, connection = self.class.connection)
      changes = changes.flat_map do |attribute, before, after|
        moved = before && after && before.source_id != after.source_id
        moved ? [[attribute, before, nil], [attribute, nil, after]] : [[attribute, before, after]]
      end
      changes = changes.select { |_, before, after| before || after }
      Leasehold::Transactions::Change.keep(self, changes, connection) if changes.any?
    end
  end
end
