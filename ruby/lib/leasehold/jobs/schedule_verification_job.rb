# frozen_string_literal: true

require "active_job"
require "leasehold/rails"

module Leasehold
  # Schedules the verification of all models, one after the other, from a random moment on, so that cells that are
  # scheduled alike do not come all at once.
  class ScheduleVerificationJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }

    # Schedules them.
    def perform
      settings = Leasehold.configuration
      start = rand * settings.verification_jitter_seconds
      Models.names.each_with_index do |name, position|
        wait = start + position * settings.verification_stagger_seconds
        VerifyJob.set(wait: wait).perform_later(name)
      end
    end
  end
end
