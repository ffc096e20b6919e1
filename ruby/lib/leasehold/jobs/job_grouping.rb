# frozen_string_literal: true

require "active_support/core_ext/class/attribute"
require "zlib"

module Leasehold
  # Extends job classes: jobs of one group are performed in order, one at a time or a few at a time.
  module JobGrouping
    Grouping = Struct.new(:key, :limit)
    private_constant :Grouping

    # Returns the key of the lane in which a job waits: its id, unless its class is grouped.
    #
    # @api private
    # @raise [Error::Invalid] if the key of its group is no text
    # @return [String]
    def self.lane(job)
      grouping = job.class.leasehold_grouping or return job.job_id
      key = Queues::Messages.key(grouping.key.call(job))
      # Each lane has one worker at a time, so the number of lanes is the limit. A job that is enqueued again has its id
      # still, and so its lane.
      grouping.limit ? "#{key}/#{Zlib.crc32(job.job_id) % grouping.limit}" : key
    end

    # @api private
    def self.extended(base)
      base.class_attribute(:leasehold_grouping, instance_accessor: false, instance_predicate: false)
    end

    # Makes jobs of one key wait for each other, within their queue. Without a limit they are performed in the order in
    # which they were enqueued, and one that the server tries again holds back those behind it; `retry_on` enqueues it anew.
    #
    # @example
    #   grouped_by { |job| job.arguments.first.id }
    #   grouped_by :account_id, perform_limit: 3
    # @param method [Symbol, nil] the name of a method of the job that returns the key; or give a block
    # @param perform_limit [Integer, nil] the most jobs of the group that are performed at a time: each job has one of as
    #   many places by its id, and waits for those before it in its place
    # @yieldparam job [ActiveJob::Base]
    # @yieldreturn [String, Symbol, Integer]
    # @return [void]
    def grouped_by(method = nil, perform_limit: nil, &block)
      raise ArgumentError, "`grouped_by` needs a name or a block: pass one of them" if method.nil? == block.nil?
      unless perform_limit.nil? || (perform_limit.is_a?(Integer) && perform_limit.positive?)
        raise ArgumentError, "`perform_limit` is no number of jobs: pass an Integer from 1 on"
      end

      self.leasehold_grouping = Grouping.new(block || ->(job) { job.public_send(method) }, perform_limit)
    end
  end
end
