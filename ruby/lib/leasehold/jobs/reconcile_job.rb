# frozen_string_literal: true

require "active_job"
require "leasehold/rails"

module Leasehold
  # Settles what was left unsettled. To be run every minute; several at once do no harm.
  class ReconcileJob < ActiveJob::Base
    queue_as { Leasehold.configuration.queue }

    # @return [Hash{Symbol => Object}] what the run has done
    def perform
      Reconciler.new.run
    end
  end
end
