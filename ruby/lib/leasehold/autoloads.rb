# frozen_string_literal: true

# Constants that load on first use: a job or rake task may name them before any model is loaded.
module Leasehold
  autoload :BulkClaimsJob, "leasehold/jobs/bulk_claims_job"
  autoload :BulkUpdate, "leasehold/bulk_update"
  autoload :ClaimsRejected, "leasehold/claims_rejected"
  autoload :ClaimsTaken, "leasehold/claims_rejected"
  autoload :ClaimsUnavailable, "leasehold/claims_rejected"
  autoload :Console, "leasehold/console"
  autoload :Doctor, "leasehold/doctor"
  autoload :JobGrouping, "leasehold/jobs/job_grouping"
  autoload :JobRequests, "leasehold/jobs/job_requests"
  autoload :JobWorker, "leasehold/jobs/job_requests"
  autoload :Models, "leasehold/models"
  autoload :ReconcileJob, "leasehold/jobs/reconcile_job"
  autoload :Reconciler, "leasehold/reconciler"
  autoload :Relay, "leasehold/relay"
  autoload :Release, "leasehold/release"
  autoload :ScheduleVerificationJob, "leasehold/jobs/schedule_verification_job"
  autoload :Verifier, "leasehold/verifier"
  autoload :VerifyJob, "leasehold/jobs/verify_job"
end

module Cells
  autoload :BulkClaimsWorker, "cells/bulk_claims_worker"
end
