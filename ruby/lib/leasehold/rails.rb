# frozen_string_literal: true

require "active_record"
require "active_support/all"
require_relative "../leasehold"
require_relative "proto/gitlab/cells/topology_service/claims/v1/record_pb"
require_relative "events"
require_relative "models"
require_relative "claimed_attribute"
require_relative "source_key"
require_relative "lease_table"
require_relative "lease_tables"
require_relative "claims_rejected"
require_relative "transactions/record"
require_relative "transactions/net_effect"
require_relative "transactions/change"
require_relative "transactions/settlement"
require_relative "transactions/covered"
require_relative "transactions/update"
require_relative "lease_first"
require_relative "../cells/claimable"

module Leasehold
  autoload :BulkUpdate, "leasehold/bulk_update"
  autoload :BulkClaimsJob, "leasehold/jobs/bulk_claims_job"
  autoload :Console, "leasehold/console"
  autoload :ReconcileJob, "leasehold/jobs/reconcile_job"
  autoload :Reconciler, "leasehold/reconciler"
  autoload :ScheduleVerificationJob, "leasehold/jobs/schedule_verification_job"
  autoload :Verifier, "leasehold/verifier"
  autoload :VerifyJob, "leasehold/jobs/verify_job"
end

module Cells
  autoload :BulkClaimsWorker, "cells/bulk_claims_worker"
end
