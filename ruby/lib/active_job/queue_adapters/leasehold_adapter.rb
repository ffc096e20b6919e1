# frozen_string_literal: true

require "active_job"
require "leasehold/jobs/job_requests"

module ActiveJob
  module QueueAdapters
    # Enqueues jobs as requests of Leasehold's queues, which `bin/rails leasehold:work` works on.
    #
    # @example
    #   config.active_job.queue_adapter = :leasehold
    class LeaseholdAdapter < (const_defined?(:AbstractAdapter) ? AbstractAdapter : Object)
      # Enqueues a job.
      #
      # @raise [Leasehold::Error]
      # @return [void]
      def enqueue(job)
        Leasehold::JobRequests.submit([job])
      end

      # Enqueues a job that is not performed before its time.
      #
      # @param timestamp [Numeric] seconds since 1970
      # @raise [Leasehold::Error]
      # @return [void]
      def enqueue_at(job, timestamp)
        Leasehold::JobRequests.submit([job], timestamp)
      end

      # Enqueues several jobs, for `perform_all_later` of Rails 7.1 and later.
      #
      # @raise [Leasehold::Error] if some jobs were not enqueued: `successfully_enqueued?` of the others is true
      # @return [Integer] the number of the jobs
      def enqueue_all(jobs)
        Leasehold::JobRequests.submit(jobs)
        jobs.size
      end

      # Returns true unless this thread has a transaction of a database with an outbox open, which is written in it. Rails 7.2 then
      # enqueues after the transactions of all databases, whose rollback the server would not see.
      def enqueue_after_transaction_commit?
        Leasehold.configuration.outbox_databases.nil? || Leasehold::Outbox.of_transaction.nil?
      end

      # Returns true once this process works no longer, for continuations of Rails 8.1 and later.
      def stopping?(_job = nil)
        Leasehold::JobWorker.stopping?
      end
    end
  end
end
