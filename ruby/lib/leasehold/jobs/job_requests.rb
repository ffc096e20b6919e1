# frozen_string_literal: true

require "digest/sha1"
require "json"
require "leasehold/queues"
require_relative "job_grouping"
require_relative "job_worker"

module Leasehold
  # Converts jobs of ActiveJob to requests, and submits them.
  #
  # @api private
  module JobRequests
    # The most requests and bytes of bodies of one call.
    MAX_REQUESTS = 1_000
    MAX_BYTES = 4 * 1024 * 1024
    # The level of a job without a priority. For ActiveJob's adapters a smaller priority is the more urgent one, and 0 the
    # default; for the server a larger level is.
    DEFAULT_LEVEL = 5
    LEVELS = (0..9).freeze
    private_constant :MAX_REQUESTS, :MAX_BYTES, :DEFAULT_LEVEL, :LEVELS

    class << self
      # Submits jobs, and notes at each that it is enqueued.
      #
      # @param jobs [Array<ActiveJob::Base>]
      # @param timestamp [Numeric, nil] seconds since 1970, for all jobs; nil for the `scheduled_at` of each
      # @raise [Error]
      # @return [void]
      def submit(jobs, timestamp = nil)
        jobs.group_by { |job| queue_name(job.queue_name) }.each do |name, of_queue|
          requests = of_queue.map { |job| [job, request(job, timestamp || job.scheduled_at)] }
          slices(requests).each { |slice| submit_slice(Leasehold.queue(name), slice) }
        end
      end

      # @return [String] the name of the queue for a queue of ActiveJob
      def queue_name(name)
        [Leasehold.configuration.job_queue_prefix, name].compact.join(".")
      end

      private

      def request(job, timestamp)
        data = job.serialize
        {
          key: JobGrouping.lane(job), body: JSON.generate(data), priority: level(job.priority), id: id(data),
          delay: timestamp ? [timestamp.to_f - Time.now.to_f, 0].max : 0, max_attempts: Leasehold.configuration.job_max_attempts
        }
      end

      # @param priority [Integer, nil]
      def level(priority)
        (DEFAULT_LEVEL - priority.to_i).clamp(LEVELS)
      end

      # Returns the same id for each try to enqueue one execution of a job, and another one for its retries. A continuation
      # that resumes (activejob 8.1, active_job/continuable.rb) is another one, too.
      def id(data)
        hash = Digest::SHA1.hexdigest(data.values_at("job_id", "executions", "resumptions").join("/"))
        # The form of a UUID made from a name: version 5, variant 2 (RFC 9562, section 5.5).
        [hash[0, 8], hash[8, 4], "5#{hash[13, 3]}", (hash[16, 4].hex & 0x3fff | 0x8000).to_s(16), hash[20, 12]].join("-")
      end

      def slices(requests)
        bytes = count = 0
        requests.slice_before do |_, request|
          count, bytes = count + 1, bytes + request[:body].bytesize
          next if count <= MAX_REQUESTS && bytes <= MAX_BYTES

          count, bytes = 1, request[:body].bytesize
        end
      end

      def submit_slice(queue, slice)
        submitted = queue.submit_all(slice.map(&:last))
        slice.each.with_index { |(job, _), place| note_enqueued(job, submitted[place].id) }
      rescue Error::Invalid => error
        raise unless error.code == "IDEMPOTENCY_KEY_REUSED"
        return note_enqueued(slice.first.first, slice.first.last[:id]) if slice.one?

        slice.each { |one| submit_slice(queue, [one]) }
      end

      # A request of the same execution exists already if a job was enqueued again: because the answer was lost, or its
      # worker died after a retry. The job has another `enqueued_at` then, so the server refuses it.
      def note_enqueued(job, id)
        job.provider_job_id = id
        job.successfully_enqueued = true if job.respond_to?(:successfully_enqueued=)
      end
    end
  end
end
