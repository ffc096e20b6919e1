# frozen_string_literal: true

require "active_support/concern"
require_relative "claimable/metadata"

module Cells
  # Keeps attributes of a model unique across all cells.
  #
  #     class User < ApplicationRecord
  #       include Cells::Claimable
  #       cells_claims_attribute :username, type: CLAIMS_BUCKET_TYPE::USERNAMES, feature_flag: :cells_claims_users
  #       cells_claims_metadata subject_type: CLAIMS_SUBJECT_TYPE::USER, subject_key: :id
  #     end
  #
  # A value that another cell has claimed becomes a validation error. Code that bypasses callbacks claims
  # through {BulkClaimsWorker}.
  module Claimable
    extend ActiveSupport::Concern

    class << self
      # @return [Set<Class>] the models that claim attributes, anonymous ones included
      def models_with_claims
        Leasehold::Models.classes
      end
    end

    include Leasehold::ActiveRecordCompat::RowWrites
    include Metadata

    CLAIMS_BUCKET_TYPE = Leasehold::Contract::Gitlab::Cells::TopologyService::Claims::V1::Bucket::Type
    CLAIMS_SUBJECT_TYPE = Leasehold::Contract::Gitlab::Cells::TopologyService::Claims::V1::Subject::Type
    CLAIMS_SOURCE_TYPE = Leasehold::Contract::Gitlab::Cells::TopologyService::Claims::V1::Source::Type
    # The kinds of claims, with the numbers of {CLAIMS_BUCKET_TYPE}.
    CLAIMS_CLAIM_TYPE = Leasehold::Contract::Gitlab::Cells::TopologyService::Types::V1::ClaimType
    # The contract's message for a claim's value. The message has one field for each kind of claim.
    CLAIMS_CLAIM = Leasehold::Contract::Gitlab::Cells::TopologyService::Types::V1::Claim
    # The name of each field of {CLAIMS_CLAIM}, by the number of the claim's kind.
    CLAIM_FIELD_BY_TYPE = CLAIMS_CLAIM.descriptor.to_h { |field| [field.number, field.name.to_sym] }.freeze
    # Raised for a claim of a row that has no primary key yet.
    MissingPrimaryKeyError = Leasehold::Error::MissingPrimaryKey
    # Recommended number of claims per job of {BulkClaimsWorker}.
    BULK_CLAIMS_BATCH_SIZE = 1000

    included do
      class_attribute :cells_claims_declarations, instance_accessor: false, default: {}.freeze
      class_attribute :cells_claims_settings, :cells_claims_scope_block, instance_accessor: false

      validate :cells_claims_validate_values
    end

    class_methods do
      # Claims the values of an attribute.
      #
      # @param name [Symbol] a column
      # @param type [Integer, Symbol] a member of {CLAIMS_BUCKET_TYPE} or {CLAIMS_CLAIM_TYPE}
      # @param feature_flag [Symbol, nil] values are claimed only while this flag is on; nil for always
      # @param if [Proc, Symbol] decides for a record whether its value is claimed: a block with the record as
      #   argument, a block evaluated in the record, or the name of a method of the record
      # @raise [Leasehold::Error::Misconfigured] if the type is unknown
      # @raise [Leasehold::Models::InvalidDeclaration] if `if` is neither a Proc nor a Symbol
      def cells_claims_attribute(name, type:, feature_flag: nil, if: nil)
        condition = binding.local_variable_get(:if)
        attribute = Leasehold::ClaimedAttribute.new(
          name: name, type: type, feature_flag: feature_flag, condition: condition
        )
        self.cells_claims_declarations = cells_claims_declarations.merge(name.to_sym => attribute).freeze
        Leasehold::Models.add(self)
      end

      # @return [Hash{Symbol => Hash}] the arguments `type`, `feature_flag` and `if` of each claimed attribute
      def cells_claims_attributes
        cells_claims_declarations.transform_values(&:declaration)
      end

      # Declares the subject of the claims, and the source type of the table that has their rows.
      #
      # @param subject_type [Integer, Symbol] a member of {CLAIMS_SUBJECT_TYPE}
      # @param subject_key [Symbol, Proc] the column or method that returns the subject's id, or a block that is
      #   evaluated in the record
      # @param source_type [Integer, Symbol, nil] a member of {CLAIMS_SOURCE_TYPE}; nil to infer it from the
      #   table's name
      def cells_claims_metadata(subject_type:, subject_key:, source_type: nil)
        self.cells_claims_settings = {
          subject_type: Leasehold::Enumeration.number(CLAIMS_SUBJECT_TYPE, subject_type), subject_key: subject_key,
          source_type: source_type && Leasehold::Enumeration.number(CLAIMS_SOURCE_TYPE, source_type)
        }.freeze
      end

      # @raise [Leasehold::Error::Misconfigured] if the model does not call `cells_claims_metadata`
      # @return [Integer] the subject's type
      def cells_claims_subject_type
        cells_claims_settings!.fetch(:subject_type)
      end

      # @raise [Leasehold::Error::Misconfigured] if the model does not call `cells_claims_metadata`
      # @raise [Leasehold::Models::InvalidDeclaration] if the key is neither a Symbol nor a Proc
      # @return [Symbol, Proc] the column or method that returns the subject's id, or the block
      def cells_claims_subject_key
        key = cells_claims_settings!.fetch(:subject_key)
        return key if key.is_a?(Symbol) || key.is_a?(Proc)

        # GitLab's specs expect this message.
        raise Leasehold::Models::InvalidDeclaration, "`#{name}`: subject_key must be a Symbol or a Proc, but got: #{key.class}"
      end

      # Returns true if a block computes the subject's id. The block may read any column, and other tables.
      def cells_claims_subject_computed?
        cells_claims_settings ? cells_claims_subject_key.is_a?(Proc) : false
      end

      # @return [String, nil] the column that has the subject's id; nil if a method or a block returns it
      def cells_claims_subject_column
        key = cells_claims_subject_key
        key.to_s if key.is_a?(Symbol) && columns_hash.key?(key.to_s)
      end

      # Called with a block, sets the relation of the rows that verification reads. Called without one, returns
      # that relation; the default is all rows.
      #
      # The returned relation selects only the columns of claims, except in two cases: the block selects columns
      # itself, or a method or a block computes the subject and may read any column.
      def cells_claims_scope(&block)
        return self.cells_claims_scope_block = block if block

        # `unscoped`, because rows that a default scope hides keep their claims.
        scope = cells_claims_scope_block ? unscoped.instance_exec(&cells_claims_scope_block) : unscoped
        return scope if scope.select_values.any? || cells_claims_subject_column.nil?

        scope.select(*cells_claims_columns, *([inheritance_column, "updated_at"] & column_names))
      end

      # @raise [Leasehold::Error::Misconfigured] if the contract has no source type for the table
      # @return [Integer] the table's source type
      def cells_claims_source_type
        settings = cells_claims_settings!
        settings.fetch(:source_type) || Leasehold::ClaimedTable.source_type(table_name)
      end

      # @raise [Leasehold::Error::Misconfigured] if the model does not call `cells_claims_metadata`, or the
      #   contract has no source type for the table
      # @return [Leasehold::ClaimedTable] the settings from which the claims of all rows are built
      def cells_claims_table
        settings = cells_claims_settings!
        columns = columns_hash
        return @cells_claims_table if @cells_claims_table&.current?(settings, columns)

        @cells_claims_table = Leasehold::ClaimedTable.new(self, settings, columns)
      end

      # @return [Array<String>] the columns from which claims are built
      def cells_claims_columns
        declared = cells_claims_declarations
        claimed = [cells_claims_subject_column, *declared.each_value.map(&:name)] if declared.any?
        [primary_key, *claimed].uniq & column_names
      end

      # Returns true if the model claims the attribute and its feature flags are on.
      def cells_claims_enabled_for_attribute?(name)
        cells_claims_declarations[name.to_sym]&.enabled? || false
      end

      # @raise [Leasehold::Error::Misconfigured] if a declaration does not fit the table
      # @return [Array<Leasehold::ClaimedAttribute>] the claimed attributes whose feature flags are on
      def cells_claims_enabled
        attributes = cells_claims_declarations
        enabled = Leasehold::ClaimedAttribute.enabled(attributes)
        return enabled if enabled.empty? || cells_claims_checked?(attributes, columns_hash)

        cells_claims_check_subject
        attributes.each_value { |attribute| cells_claims_check(attribute) }
        @cells_claims_checked = [attributes, columns_hash]
        enabled
      end

      private

      # Returns true if exactly these attributes and columns were checked. Columns can be renamed while a
      # process runs.
      def cells_claims_checked?(attributes, columns)
        @cells_claims_checked && @cells_claims_checked[0].equal?(attributes) && @cells_claims_checked[1].equal?(columns)
      end

      def cells_claims_check_subject
        key = cells_claims_subject_key
        return if key.is_a?(Proc) || attribute_names.include?(key.to_s) || method_defined?(key)

        raise Leasehold::Error::Misconfigured,
              "`#{name}##{key}` is neither a column nor a method: name a `subject_key` that is one of them"
      end

      # Checks the primary key, by which a claim names its row, and the column that has the attribute's value.
      def cells_claims_check(attribute)
        cells_claims_check_key
        column = columns_hash[attribute.name]
        return cells_claims_check_type(column) if column

        original = attribute_aliases[attribute.name]
        raise Leasehold::Error::Misconfigured,
              "`#{name}##{attribute.name}` is not a column of `#{table_name}`: claim #{original ? "`#{original}`" : "a column"}"
      end

      # Refuses a table whose primary key is not one column. For a key of several columns, `primary_key` is nil
      # before Rails 7.1, and an Array from 7.1 on.
      def cells_claims_check_key
        return cells_claims_check_key_type if primary_key.is_a?(String)

        columns = Leasehold::ActiveRecordCompat.with_connection(connection_pool) { |connection| connection.primary_keys(table_name) }
        names = columns.map { |column| "`#{column}`" }.join(", ")
        has = columns.many? ? "a primary key of the columns #{names}" : "no primary key"
        raise Leasehold::Error::Misconfigured, "`#{name}` has #{has}: use a table whose primary key is one column"
      end

      # Refuses a key that the database cannot sort by the bytes of its source id: verification reads rows in
      # that order.
      def cells_claims_check_key_type
        column = columns_hash[primary_key]
        return if column.nil? || Leasehold::ColumnTypes.key?(self, column)

        raise Leasehold::Error::Misconfigured,
              "`#{name}##{primary_key}` is a `#{column.sql_type}`: use a primary key that is a whole number, a UUID or a text"
      end

      # A save claims the value as it is written; the next save and verification compare the value as it is
      # read. Both must be equal, so column types that PostgreSQL normalises are refused.
      def cells_claims_check_type(column)
        return if Leasehold::ColumnTypes.value?(self, column)

        raise Leasehold::Error::Misconfigured,
              "`#{name}##{column.name}` is a `#{column.sql_type}`, whose values may be read differently than they were " \
              "written: claim a `text` or a `character varying`"
      end

      def cells_claims_settings!
        cells_claims_settings || raise(
          Leasehold::Error::Misconfigured,
          "`#{name}` does not declare the subject of its claims: add `cells_claims_metadata subject_type: …, subject_key: …`"
        )
      end
    end

    # Saves the record.
    #
    # @return [Boolean] false if the record is invalid or its claims were refused; `errors` list the reasons
    def save(**)
      cells_claims_handle_rejection(->(_rejected) { false }) { super }
    end

    # Saves the record.
    #
    # @raise [Leasehold::ClaimsRejected] an `ActiveRecord::RecordInvalid`, if claims were refused
    def save!(**)
      cells_claims_handle_rejection(->(rejected) { raise rejected }) { super }
    end

    # Assigns attributes and saves the record.
    #
    # @return [Boolean] as {#save} returns it
    def update(*)
      cells_claims_handle_rejection(->(_rejected) { false }) { super }
    end

    # Assigns attributes and saves the record; raises the errors of {#save!}.
    def update!(*)
      cells_claims_handle_rejection(->(rejected) { raise rejected }) { super }
    end

    # Destroys the record.
    #
    # A temporary refusal raises: callers that destroy many records ignore the result, so they would report
    # success while the rows stay. Rails' `destroy_all` does (activerecord 6.1.7.10, relation.rb:553), and so does
    # `DestroyAssociationAsyncJob` (destroy_association_async_job.rb:27). With the setting
    # `raise_on_unavailable_destroy = false`, such a refusal returns false.
    #
    # @raise [Leasehold::ClaimsUnavailable] if the same call can succeed later
    # @return [self, false] false if the server refused to destroy a claim and a retry cannot help; `errors`
    #   list the reasons
    def destroy
      refuse = lambda do |rejected|
        raise rejected if rejected.temporary? && Leasehold.configuration.raise_on_unavailable_destroy

        false
      end
      cells_claims_handle_rejection(refuse) { super }
    end

    # @return [Array<Leasehold::Claim>] the claims of the record with its current values
    def cells_claims
      cells_claims_enabled.filter_map { |attribute| attribute.claim(self) if attribute.claims?(self) }
    end

    # Returns true if the model claims the attribute and its feature flags are on.
    def cells_claims_enabled_for_attribute?(name)
      self.class.cells_claims_enabled_for_attribute?(name)
    end

    private

    def cells_claims_enabled
      self.class.cells_claims_enabled
    end

    # Runs the block, which saves or destroys the record, and handles a refusal of its claims. The refusal is
    # raised at the end of the transaction that the save belongs to, and must leave that transaction as an
    # exception. If an inner `save` returned false instead, the outer transaction would COMMIT rows without
    # their claims.
    #
    # @param outcome [Proc] called with the rejection if this call opened the transaction
    def cells_claims_handle_rejection(outcome, &work)
      joining = Leasehold::Transactions::Nesting.joining?(Leasehold::ActiveRecordCompat.held_connection(self.class))
      Leasehold::ClaimedAttribute.asking_flags_once(&work)
    rescue Leasehold::ClaimsRejected => rejected
      raise if joining

      outcome.call(rejected.reported_on(self))
    end

    # Validates the claimed values by the rules of their bucket types. The engine checks these rules without
    # the server.
    def cells_claims_validate_values
      cells_claims_enabled.each do |attribute|
        value = _read_attribute(attribute.name)
        blank = Leasehold::ClaimedAttribute.blank?(value)
        next if blank || !(new_record? || will_save_change_to_attribute?(attribute.name)) || !cells_claims_now?(attribute)

        errors.add(attribute.name, :invalid, value: value) unless attribute.allows?(value)
      end
    end

    # Returns true if the condition allows a claim for this instance. An instance that was loaded with `select`
    # may lack columns that the condition reads. For such an instance this method returns false, and the value
    # is checked only when the claim is begun, with the stored row.
    def cells_claims_now?(attribute)
      attribute.claims?(self)
    rescue ActiveModel::MissingAttributeError
      false
    end

    # The three methods below run around the statements that write the row
    # ({Leasehold::ActiveRecordCompat::RowWrites}).

    # @yieldparam write [Leasehold::Transactions::InterruptedWrite] watches the INSERT
    def cells_claims_around_save
      connection = Leasehold::ActiveRecordCompat.held_connection(self.class)
      cells_claims_refuse_without_transaction if Leasehold::ActiveRecordCompat.transactions(connection).empty?
      Leasehold::Transactions::NestedDestroys.register(self, connection) if self.class.nested_attributes_options.any?
      Leasehold::Transactions::InterruptedWrite.watch(connection) { |write| yield write }
    end

    def cells_claims_around_update(columns, &write)
      update = Leasehold::RowUpdate.read(self, columns, lock: true)
      rows = update ? cells_claims_write_and_register(write) { |count| count.positive? ? update.changes : [] } : yield
      Leasehold::Transactions::CoveredRow.wrote(self, columns) if cells_claims_covered? && rows.positive?
      rows
    end

    def cells_claims_around_delete(&write)
      connection = Leasehold::ActiveRecordCompat.held_connection(self.class)
      cells_claims_refuse_without_transaction if Leasehold::ActiveRecordCompat.transactions(connection).empty?
      destroys = Leasehold::RowUpdate.deletion(self, Leasehold::StoredRow::DELETE_LOCK)
      rows = destroys.any? ? cells_claims_write_and_register(write) { destroys } : yield
      Leasehold::Transactions::CoveredRow.deleted(self) if cells_claims_covered?
      rows
    end

    # Returns true if the transaction tells the database which rows it has written. Flags and conditions change nothing in
    # that: a row whose values need no claim is covered, too.
    def cells_claims_covered?
      Leasehold.configuration.strict_claims
    end

    # Refuses a write without a transaction: if a claim were refused, the write could not be rolled back. From
    # Rails 8.2 on a model may save this way (`implicit_persistence_transaction`, 8.2.0.alpha,
    # transactions.rb:594).
    def cells_claims_refuse_without_transaction
      return if cells_claims_enabled.empty?

      raise Leasehold::Error::Misconfigured,
            "`#{self.class}` writes without a transaction, so its claims could not be refused: save it within `transaction`"
    end

    # @param write [Proc] the statement; returns the number of rows that it wrote
    # @yieldreturn [Array<Array(ClaimedAttribute, Claim, Claim)>] the changes to register after the statement
    # @return [Integer] the number of rows
    def cells_claims_write_and_register(write)
      connection = Leasehold::ActiveRecordCompat.held_connection(self.class)
      Leasehold::Transactions::InterruptedWrite.watch(connection) do |interrupted|
        interrupted.start
        rows = write.call
        interrupted.register { cells_claims_register(yield(rows), connection) }
        rows
      end
    end

    def cells_claims_after_insert
      Leasehold::Transactions::CoveredRow.wrote(self, attribute_names) if cells_claims_covered?
      cells_claims_register(Leasehold::RowUpdate.insertion(self), Leasehold::ActiveRecordCompat.held_connection(self.class))
    end

    # A change of the primary key destroys the claims of the old key and creates claims of the new one.
    def cells_claims_register(changes, connection)
      changes = changes.flat_map do |attribute, before, after|
        moved = before && after && before.source_id != after.source_id
        moved ? [[attribute, before, nil], [attribute, nil, after]] : [[attribute, before, after]]
      end
      changes = changes.select { |_, before, after| before || after }
      Leasehold::Transactions::Change.register(self, changes, connection) if changes.any?
    end
  end
end
