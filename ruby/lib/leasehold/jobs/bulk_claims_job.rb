# frozen_string_literal: true

require "active_job"
require "leasehold/rails"
require "leasehold/uncached"
require_relative "retry_wait"

module Leasehold
  # Claims for rows that were written past ActiveRecord's callbacks, outside of any transaction.
  class BulkClaimsJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }
    # They hold what is claimed: names, addresses.
    self.log_arguments = false
    retry_on Error::Unavailable, Error::DeadlineExceeded, Error::Overloaded, Error::Busy, wait: RETRY_WAIT

    # What a payload may have.
    PAYLOAD = %w[create_record_ids destroy_metadata].freeze

    # @param model_name [String]
    # @param attribute_name [String]
    # @param payload [Hash] `"destroy_metadata"`, of `build_destroy_metadata_for_worker`, or `"create_record_ids"`, or both
    def perform(model_name, attribute_name, payload)
      payload = payload.stringify_keys
      check(payload)
      model = Models.fetch(model_name)
      name = Models.attribute(model, attribute_name)
      return if Models.of_table(model).none? { |one| one.cells_claims_enabled_for_attribute?(name) }

      Uncached.run { claim(model, name, payload) }
    end

    private

    # A misspelt key would claim nothing, and say nothing.
    def check(payload)
      unknown = payload.keys - PAYLOAD
      return if unknown.empty?

      raise ArgumentError, "a payload has no `#{unknown.first}`: it has #{PAYLOAD.map { |key| "`#{key}`" }.join(' and ')}"
    end

    def claim(model, name, payload)
      creates = creates(model, name, payload.fetch("create_record_ids", []))
      destroys = payload.fetch("destroy_metadata", []).map { |claim| destroy(claim) }
      BulkUpdate.new(
        connection: model.connection, key: job_id, creates: creates, destroys: due(model, destroys, creates)
      ).run
    end

    # Each row claims what its own class says (STI).
    def creates(model, name, ids)
      model.unscoped.where(model.primary_key => ids).filter_map do |record|
        attribute = record.class.cells_claims_attributes[name]
        attribute.claim(record) if attribute&.enabled? && attribute.claims?(record)
      end
    end

    # What rows still claim, or claim again, is not given up; but what is to be claimed anew replaces what is there.
    def due(model, destroys, creates)
      kept = claimed_now(model, destroys) - creates.map { |claim| place(claim) }.to_set
      destroys.reject { |claim| kept.include?(place(claim)) }
    end

    # Where the rows that claims came from have claims now.
    def claimed_now(model, claims)
      key = SourceKey.new(model)
      ids = claims.select { |claim| claim.source_type == model.cells_claims_source_type }.map { |claim| key.decode(claim.source_id) }
      rows = model.base_class.unscoped.where(model.primary_key => ids.uniq).select { |row| row.is_a?(Cells::Claimable) }
      rows.flat_map(&:cells_claims_metadata).to_set { |claim| place(claim) }
    end

    # The bucket, however its value is spelled, and the row that it belongs to.
    def place(claim)
      [*claim.bucket, claim.source_type, claim.source_id]
    end

    def destroy(metadata)
      claim = metadata.symbolize_keys.slice(*Claim.members)
      Claim.new(**claim, source_id: [claim.fetch(:source_id)].pack("H*"))
    end
  end
end
