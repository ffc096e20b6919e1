# frozen_string_literal: true

module Cells
  # Claims for code that bypasses callbacks. The name and the arguments are those of the Sidekiq worker that
  # existing cells call. The work runs as an ActiveJob, so any backend can run it. Call {perform_async} after
  # the transaction is committed.
  module BulkClaimsWorker
    # @param model_name [String]
    # @param attribute_name [String]
    # @param payload [Hash] `"destroy_metadata"`, `"create_record_ids"`, or both
    def self.perform_async(model_name, attribute_name, payload)
      Leasehold::BulkClaimsJob.perform_later(model_name, attribute_name, payload)
    end
  end
end
