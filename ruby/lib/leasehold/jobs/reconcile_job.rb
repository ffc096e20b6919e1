# frozen_string_literal: true

require "active_job"
require "leasehold/rails"

module Leasehold
  # Settles the leases that their processes left unsettled. Run it every minute; several runs at
  # once do no harm (R05). It does not retry by itself: the next run repeats failed steps. The error
  # is raised, so that the job backend reports it.
  class ReconcileJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }

    # @raise [Error, ActiveRecord::ActiveRecordError] the first failure, after all other steps are
    #   done
    # @return [Hash{Symbol => Object}] the run's summary
    def perform
      reconciler = Reconciler.new
      summary = reconciler.run
      failure = reconciler.failures.first
      failure ? raise(failure.error) : summary
    end
  end
end
