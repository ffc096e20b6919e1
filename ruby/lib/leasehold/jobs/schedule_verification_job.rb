# frozen_string_literal: true

require "active_job"
require "leasehold/rails"

module Leasehold
  # Schedules a verification of each model, one after the other. The first starts after a random
  # delay, so that cells with the same schedule do not load the server at the same time. A model
  # that cannot be verified is left out, and so is a class of a table (STI) whose rows the verification of
  # an ancestor compares.
  class ScheduleVerificationJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }

    # Schedules the jobs.
    def perform
      settings = Leasehold.configuration
      start = rand * settings.verification_jitter_seconds
      names.each_with_index do |name, position|
        wait = start + position * settings.verification_stagger_seconds
        VerifyJob.set(wait: wait).perform_later(name)
      end
    end

    private

    def names
      verifiable = Models.names.select { |name| verifiable?(name) }
      Models.without_covered(verifiable) { |ancestor| VerifyJob.enabled?(ancestor) }
    end

    # Checks the model here, because each of its runs would fail with the same error.
    def verifiable?(name)
      Models.check(Models.fetch(name))
      true
    rescue Error::Misconfigured, Models::InvalidDeclaration, Models::Unknown => error
      Events.publish(:unverifiable, model: name, error: error.class.name, message: error.message)
      false
    rescue ActiveRecord::ActiveRecordError
      # The database may be reachable again when the model's job runs. If not, that job reports it.
      true
    end
  end
end
