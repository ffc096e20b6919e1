# frozen_string_literal: true

module Cells
  module Claimable
    # Returns claims as hashes in the form of GitLab's concern, for code that was written for that concern.
    module Metadata
      # The claims of the record with its current values, whatever the feature flags are. The form follows the
      # setting `metadata_form`:
      #
      #     { bucket: { type: 4, value: "alice" }, subject: { type: 4, id: 7 },
      #       source: { type: 1, rails_primary_key_id: "\x00…\x07" }, record: user }
      #
      # @return [Array<Hash{Symbol => Object}>]
      def cells_claims_metadata
        self.class.cells_claims_declarations.keys.filter_map { |name| cells_claims_metadata_for_attribute(name) }
      end

      # @return [Hash{Symbol => Object}, nil] the claim of one attribute, in the form of {#cells_claims_metadata};
      #   nil if the model does not claim the attribute, or the record's value is not claimed
      def cells_claims_metadata_for_attribute(name)
        attribute = self.class.cells_claims_declarations[name.to_sym]
        value = attribute && self[attribute.name]
        return if attribute.nil? || Leasehold::ClaimedAttribute.blank?(value) || !attribute.claims?(self)

        cells_claims_metadata_for(attribute.type, value)
      end

      # @param type [Integer] a member of `CLAIMS_CLAIM_TYPE`
      # @return [Hash{Symbol => Object}] the fields of a `CLAIMS_CLAIM` with the value
      def cells_claims_claim_hash(type, value)
        field = CLAIM_FIELD_BY_TYPE.fetch(type)
        text = Leasehold::ClaimedAttribute.text(value)
        { field => CLAIMS_CLAIM.descriptor.lookup(field.to_s).type == :int64 ? Integer(text, 10) : text }
      end

      # Builds the data with which {BulkClaimsWorker} destroys the claim after the row is deleted.
      #
      # @return [Hash{String => Object}, nil] JSON-safe values; nil if the model does not claim the attribute, or the
      #   record's value is not claimed
      def build_destroy_metadata_for_worker(name)
        attribute = self.class.cells_claims_declarations[name.to_sym]
        return unless attribute&.enabled? && attribute.claims?(self)

        claim = attribute.claim(self, Leasehold::ClaimedAttribute::IN_DATABASE) or return
        claim.to_h.except(:source_id).stringify_keys.merge("primary_key" => id_in_database)
      end

      # Returns the names of the attributes that an error on `:base` lists as possibly taken. A model may
      # override this method.
      #
      # @return [Array<String>] the claimed attributes, without the primary key
      def unique_attributes
        names = self.class.cells_claims_declarations.each_value.map(&:name)
        (names - [self.class.primary_key]).presence || names
      end

      # Adds a validation error for a failed gRPC call that the application made itself.
      #
      # @param error [GRPC::BadStatus]
      def handle_grpc_error(error)
        # ALREADY_EXISTS and DEADLINE_EXCEEDED (gRPC, status codes).
        return cells_claims_add_taken_error if error.code == 6

        errors.add(:base, error.code == 4 ? :claims_unavailable : :claims_failed)
      end

      private

      def cells_claims_add_taken_error
        names = unique_attributes.to_sentence(two_words_connector: " or ", last_word_connector: ", or ")
        type = :"#{names.parameterize(separator: '_')}_taken"
        errors.add(:base, type, message: "#{names} #{I18n.t("errors.messages.taken")}") unless errors.of_kind?(:base, type)
      end

      # GitLab's specs of models call these three methods.

      def cells_claims_metadata_for(type, value)
        text = Leasehold::ClaimedAttribute.text(value)
        by_claim = Leasehold.configuration.metadata_form == :claim
        named = by_claim ? { claim: cells_claims_claim_hash(type, value) } : { bucket: { type: type, value: text } }
        cells_claims_default_metadata.merge(named)
      end

      # @raise [MissingPrimaryKeyError] if the record has no primary key yet
      def cells_claims_default_metadata
        table = self.class.cells_claims_table
        # Refuses a record without a key before the block runs: a block may need the key to look the subject up.
        source_id = table.source_key.encode(read_attribute(table.primary_key))
        {
          subject: { type: table.subject_type, id: cells_claims_subject_key },
          source: { type: table.source_type, rails_primary_key_id: source_id },
          record: self
        }
      end

      # @return [Integer, nil] the subject's id
      def cells_claims_subject_key
        key = self.class.cells_claims_subject_key
        return instance_exec(&key) if key.is_a?(Proc)

        has_attribute?(key) ? read_attribute(key) : public_send(key)
      end
    end
  end
end
