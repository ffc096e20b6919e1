# frozen_string_literal: true

require "active_job"
require "leasehold/rails"

module Leasehold
  # Settles what was left unsettled. To be run every minute; several at once do no harm. The next one is the second try of
  # what fails, so this has none of its own: whatever runs jobs is told the error, and does what it does about errors.
  class ReconcileJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }

    # @raise [Error, ActiveRecord::ActiveRecordError] what failed first, once everything else is done
    # @return [Hash{Symbol => Object}] what the run has done
    def perform
      reconciler = Reconciler.new
      summary = reconciler.run
      failure = reconciler.failures.first
      failure ? raise(failure.error) : summary
    end
  end
end
