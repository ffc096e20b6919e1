# frozen_string_literal: true

require "json"
require "leasehold/queues"

module Leasehold
  # Performs the jobs that the adapter `:leasehold` has enqueued.
  #
  # ActiveJob itself runs each job within the executor and the reloader of Rails (activejob 6.1.7.10, railtie.rb:43). If
  # the job raises what neither `retry_on` nor `discard_on` handles, it is performed again after a time that the server
  # chooses, until its attempts are over.
  module JobWorker
    @stopping = false

    class << self
      # Performs jobs until the process gets TERM or INT.
      #
      # @param queues [Array<String>] queues of ActiveJob
      # @param concurrency [Integer] the number of threads of each queue
      # @param shutdown_timeout [Numeric] the seconds for which jobs may go on after a signal; what is unfinished then is
      #   given back, and its attempt does not count
      # @raise [Error] if no later take can succeed
      # @return [nil]
      def run(queues: ["default"], concurrency: 5, shutdown_timeout: 25)
        @stopping = false
        options = { credit: concurrency, max_requests: 1, stop_within: shutdown_timeout, on_stop: -> { @stopping = true } }
        Leasehold.work(*queues.map { |name| JobRequests.queue_name(name) }, **options) { |batch| perform(batch) }
      end

      # Returns true once {run} has got a signal.
      def stopping?
        @stopping
      end

      # Performs the jobs of a batch.
      #
      # @api private
      # @param batch [Batch]
      # @return [void]
      def perform(batch)
        batch.requests.each do |request|
          ::ActiveJob::Base.execute(JSON.parse(request.body).merge("provider_job_id" => request.id))
        end
      end
    end
  end
end
