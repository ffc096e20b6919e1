# frozen_string_literal: true

require "active_job"
require "leasehold/rails"

module Leasehold
  # Schedules the verification of all models, one after the other, from a random moment on, so that cells that are
  # scheduled alike do not come all at once. A model that can't be verified as it is keeps no other from it.
  class ScheduleVerificationJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }

    # Schedules them.
    def perform
      settings = Leasehold.configuration
      start = rand * settings.verification_jitter_seconds
      Models.names.select { |name| verifiable?(name) }.each_with_index do |name, position|
        wait = start + position * settings.verification_stagger_seconds
        VerifyJob.set(wait: wait).perform_later(name)
      end
    end

    private

    # Every run would fail alike, so it is told once, here.
    def verifiable?(name)
      Models.check(Models.fetch(name))
      true
    rescue Error::Misconfigured, Models::Unknown => error
      Events.publish(:unverifiable, model: name, error: error.class.name, message: error.message)
      false
    rescue ActiveRecord::ActiveRecordError
      # The database may be back when it is the model's turn, or the job says so itself.
      true
    end
  end
end
