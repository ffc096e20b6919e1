# frozen_string_literal: true

require "active_job"
require "leasehold/rails"
require_relative "retry_wait"

module Leasehold
  # Verifies one model's claims, for as long as the time budget goes, and then asks to be run again to go on.
  class VerifyJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }
    retry_on Error::Unavailable, Error::DeadlineExceeded, Error::Overloaded, wait: RETRY_WAIT

    # The flag above a model's verification.
    def self.flag(model)
      :"cells_claims_verification_worker_#{model.model_name.param_key}"
    end

    # @param model_name [String]
    # @param allow_empty [Boolean] see {Verifier}
    def perform(model_name, allow_empty: false)
      model = Models.fetch(model_name)
      return unless Leasehold.configuration.feature_enabled?(self.class.flag(model))

      budget = Leasehold.configuration.verification_time_budget_seconds
      report = Verifier.new(model, time_budget_seconds: budget, allow_empty: allow_empty).run
      return unless report
      return self.class.perform_later(model_name, **{ allow_empty: true }.keep_if { allow_empty }) unless report[:finished]

      # The rest is done; what is left is tried again, as where the server can't be reached at all.
      raise Error::Unavailable, "calls failed for #{report[:failed]} corrections of `#{model_name}`" if report[:failed].positive?
    end
  end
end
