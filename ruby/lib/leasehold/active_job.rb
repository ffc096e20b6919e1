# frozen_string_literal: true

# ActiveJob on the queues of Leasehold. The railtie loads this file with ActiveJob; a program without Rails requires it.

require "active_job"
require "leasehold"
require_relative "autoloads"
require_relative "jobs/job_grouping"

# The adapter loads gRPC, so it is loaded when it is configured.
ActiveJob::QueueAdapters.autoload(:LeaseholdAdapter, "active_job/queue_adapters/leasehold_adapter")
ActiveJob::Base.extend(Leasehold::JobGrouping)
