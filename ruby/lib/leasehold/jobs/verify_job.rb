# frozen_string_literal: true

require "active_job"
require "leasehold/rails"
require_relative "retry_wait"

module Leasehold
  # Verifies one model's claims. If the time budget ends first, it schedules itself again to
  # continue.
  class VerifyJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }
    retry_on Error::Unavailable, Error::DeadlineExceeded, Error::Overloaded, wait: RETRY_WAIT

    # Returns the name of the feature flag that switches the model's verification on or off.
    def self.flag(model)
      :"cells_claims_verification_worker_#{model.model_name.param_key}"
    end

    # Returns true if jobs verify the model: its flag is on, or the setting `verification_feature_flags` is false.
    def self.enabled?(model)
      settings = Leasehold.configuration
      !settings.verification_feature_flags || settings.feature_enabled?(flag(model))
    end

    # @param model_name [String]
    # @param allow_empty [Boolean] see {Verifier}
    # @param max_destroy_share [Numeric, nil] see {Verifier}
    # @param failed [Integer] number of failed corrections of the earlier parts of this run
    def perform(model_name, allow_empty: false, max_destroy_share: nil, failed: 0)
      model = Models.fetch(model_name)
      return unless self.class.enabled?(model)

      budget = Leasehold.configuration.verification_time_budget_seconds
      permissions = { allow_empty: allow_empty, max_destroy_share: max_destroy_share }
      report = Verifier.new(model, time_budget_seconds: budget, **permissions).run
      continue_or_retry(model_name, permissions, failed, report) if report
    end

    private

    def continue_or_retry(model_name, permissions, failed, report)
      failed += report[:failed]
      unless report[:finished]
        options = { **permissions, failed: failed }.select { |_, value| value && value != 0 }
        return self.class.perform_later(model_name, **options)
      end
      retry_from_beginning(model_name, failed) if failed.positive?
    end

    # Retries the whole run, from the beginning: the checkpoint is past the failed corrections.
    # ActiveJob enqueues the same job with its arguments again (activejob 6.1.7.10, exceptions.rb:122),
    # so the count of failures is removed from them.
    def retry_from_beginning(model_name, failed)
      arguments.grep(Hash).each { |options| options.delete(:failed) }
      raise Error::Unavailable, "calls failed for #{failed} corrections of `#{model_name}`"
    end
  end
end
