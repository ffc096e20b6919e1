# frozen_string_literal: true

require "active_job"
require "leasehold/rails"
require "leasehold/uncached"
require_relative "retry_wait"

module Leasehold
  # Claims for rows that were written without callbacks. Until Rails 7.1, schedule the job after the transaction
  # of these rows has committed. Later versions of Rails delay the job until then.
  class BulkClaimsJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }
    # Arguments contain claimed values: user names, email addresses (V09). ActiveJob logs arguments by
    # default (activejob 6.1.7.10, log_subscriber.rb:109); Sidekiq logs those of a failed job (sidekiq 6.4.1,
    # exception_handler.rb:9).
    self.log_arguments = false
    retry_on Error::Unavailable, Error::DeadlineExceeded, Error::Overloaded, Error::Busy, wait: RETRY_WAIT
    # The commit guard refused the row of a lease that was too old (R04).
    retry_on ActiveRecord::SerializationFailure, wait: RETRY_WAIT

    # Enqueues the job after COMMIT: before it, the job would not find the rows. Rails 7.2 has the setting
    # (activejob 7.2.2.2, enqueue_after_transaction_commit.rb:7); 8.0 replaced its Symbols by true and false.
    # Only ActiveJob's railtie includes the module that obeys the setting (activejob 7.2.2.2, railtie.rb:31),
    # and an application of `rails new --minimal` lacks this railtie.
    if respond_to?(:enqueue_after_transaction_commit=)
      include ActiveJob::EnqueueAfterTransactionCommit
      self.enqueue_after_transaction_commit = ActiveJob.version < Gem::Version.new("8.0") ? :always : true
    end

    # Keys of a payload.
    PAYLOAD_KEYS = %w[create_record_ids destroy_metadata].freeze
    # Maximum number of keys in a query. With more than 65,535 parameters ActiveRecord writes the values into the
    # text, which logs show (V09; activerecord 6.1.7.10, connection_adapters/abstract/database_statements.rb:30).
    KEYS_PER_QUERY = 1000

    # @param model_name [String]
    # @param attribute_name [String]
    # @param payload [Hash] `"destroy_metadata"` from `build_destroy_metadata_for_worker`, or
    #   `"create_record_ids"`, or both
    def perform(model_name, attribute_name, payload)
      payload = payload.stringify_keys
      check(payload)
      model = Models.fetch(model_name)
      name = Models.attribute_name(model, attribute_name)
      return if Models.of_table(model).none? { |claimable| claimable.cells_claims_enabled_for_attribute?(name) }

      Uncached.run { claim(model, name, payload) }
    end

    private

    # Refuses unknown keys: a misspelt one would claim nothing without an error.
    def check(payload)
      unknown = payload.keys - PAYLOAD_KEYS
      return if unknown.empty?

      known = PAYLOAD_KEYS.map { |key| "`#{key}`" }.join(" and ")
      raise ArgumentError, "the payload has the unknown key `#{unknown.first}`: use #{known}"
    end

    def claim(model, name, payload)
      creates = creates(model, name, payload.fetch("create_record_ids", []))
      destroys = payload.fetch("destroy_metadata", []).map { |metadata| claim_from(metadata, model) }
      claims = { creates: creates, destroys: destroys_to_send(model, destroys, creates) }
      ActiveRecordCompat.with_connection(model.connection_pool) do |connection|
        # ActiveJob keeps a job's id when it retries the job (activejob 6.1.7.10, exceptions.rb:122).
        BulkUpdate.new(connection: connection, key: job_id, **claims).run
      end
    end

    # Builds the claims of each row by the row's own class (STI).
    def creates(model, name, ids)
      rows(model.unscoped, ids).filter_map do |record|
        attribute = record.class.cells_claims_declarations[name]
        attribute.claim(record) if attribute&.enabled? && attribute.claims?(record)
      end
    end

    # Selects the destroys to send. A claim that a row has now is not destroyed, unless the same job
    # creates it: then the two are a replace (B06).
    def destroys_to_send(model, destroys, creates)
      claimed = current_claim_keys(model, destroys) - creates.map { |claim| claim_key(claim) }.to_set
      destroys.reject { |claim| claimed.include?(claim_key(claim)) }
    end

    # Reads the source rows of these claims, and returns the keys of all claims that these rows have now.
    def current_claim_keys(model, claims)
      source_key = SourceKey.new(model)
      of_model = claims.select { |claim| claim.source_type == model.cells_claims_source_type }
      ids = of_model.filter_map { |claim| source_key.decode(claim.source_id) }
      rows = rows(model.base_class.unscoped, ids).select { |row| row.is_a?(Cells::Claimable) }
      rows.flat_map(&:cells_claims).to_set { |claim| claim_key(claim) }
    end

    # @return [Array<ActiveRecord::Base>] the relation's rows that have these keys
    def rows(relation, keys)
      keys.uniq.each_slice(KEYS_PER_QUERY).flat_map { |slice| relation.where(relation.primary_key => slice).to_a }.uniq
    end

    # Returns the bucket, equal for all spellings of its value, and the source row.
    def claim_key(claim)
      [*claim.bucket, claim.source_type, claim.source_id]
    end

    # @param metadata [Hash] with the row's `primary_key`, or with its `source_id` in hexadecimal digits
    def claim_from(metadata, model)
      claim = metadata.symbolize_keys
      key = claim[:primary_key]
      source_id = key.nil? ? [claim.fetch(:source_id)].pack("H*") : SourceKey.new(model).encode(key)
      Claim.new(**claim.slice(*Claim.members), source_id: source_id)
    end
  end
end
