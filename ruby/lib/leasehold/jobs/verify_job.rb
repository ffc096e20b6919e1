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
    # @param failed [Integer] corrections of the parts before for which calls failed
    def perform(model_name, allow_empty: false, failed: 0)
      model = Models.fetch(model_name)
      return unless Leasehold.configuration.feature_enabled?(self.class.flag(model))

      budget = Leasehold.configuration.verification_time_budget_seconds
      report = Verifier.new(model, time_budget_seconds: budget, allow_empty: allow_empty).run
      go_on(model_name, allow_empty, failed, report) if report
    end

    private

    def go_on(model_name, allow_empty, failed, report)
      failed += report[:failed]
      unless report[:finished]
        options = { allow_empty: allow_empty, failed: failed }.select { |_, value| value && value != 0 }
        return self.class.perform_later(model_name, **options)
      end
      try_again(model_name, failed) if failed.positive?
    end

    # What calls failed for is left behind, whichever part it was in: another try begins at the beginning, as where the server
    # can't be reached at all.
    def try_again(model_name, failed)
      arguments.grep(Hash).each { |options| options.delete(:failed) }
      raise Error::Unavailable, "calls failed for #{failed} corrections of `#{model_name}`"
    end
  end
end
