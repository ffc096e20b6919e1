# frozen_string_literal: true

require "logger"

module Leasehold
  # What a cell has to say once, in `Leasehold.configure`.
  class Configuration
    # @return [String] host and port of the claims server
    attr_accessor :address
    # @return [Integer] the number of this cell
    attr_accessor :cell_id
    # @return [Hash] `{ ca:, certificate:, key: }`, paths of PEM files; or `{ insecure: true }` for a connection that
    #   anybody on the way can read and change
    attr_accessor :tls
    # @return [Numeric] time for one try of a call within a request
    attr_accessor :request_deadline_seconds
    # @return [Numeric] time for one try of a call of reconciliation
    attr_accessor :reconciliation_deadline_seconds
    # @return [Numeric] time for one try of a call of verification
    attr_accessor :verification_deadline_seconds
    # @return [Integer] tries of one call, where the first got no answer
    attr_accessor :tries
    # @return [Integer] begins under way at a time in one process; more are refused at once
    attr_accessor :max_concurrent_begins
    # @return [Integer] begins in a row without an answer after which no more are sent for a while
    attr_accessor :circuit_failures
    # @return [Numeric] how long none is sent
    attr_accessor :circuit_open_seconds
    # @return [Numeric] age from which a lease is given up by whoever began it
    attr_accessor :stale_after_seconds
    # @return [Integer] age of a lease up to which the database commits under it; the migration writes it down
    attr_accessor :commit_within_seconds
    # @return [Integer] rows that verification compares at a time
    attr_accessor :verification_page_rows
    # @return [Numeric] how long one run of verification goes on before it asks to be run again
    attr_accessor :verification_time_budget_seconds
    # @return [Numeric] between the verifications of two models
    attr_accessor :verification_stagger_seconds
    # @return [Numeric] scheduled verification begins at a random moment within
    attr_accessor :verification_jitter_seconds
    # @return [Array<Class>, nil] classes connected to the databases with tables of leases; those of claimable models
    #   unless said, which does for all but sharded ones
    attr_accessor :lease_databases
    # @return [Symbol] the queue of jobs
    attr_accessor :queue
    # @return [Boolean] tests run in a transaction that is rolled back; the one within is then taken for the real one
    attr_accessor :transactional_tests
    # @return [Numeric] verification leaves alone what was changed so recently
    attr_accessor :recent_within_seconds
    # @return [Logger] where jobs report
    attr_accessor :logger

    def initialize
      @request_deadline_seconds = 0.3
      @reconciliation_deadline_seconds = 1
      @verification_deadline_seconds = 10
      @tries = 2
      @max_concurrent_begins = 300
      @circuit_failures = 10
      @circuit_open_seconds = 5
      @stale_after_seconds = 600
      @commit_within_seconds = 300
      @verification_page_rows = 1000
      @verification_time_budget_seconds = 270
      @verification_stagger_seconds = 600
      @verification_jitter_seconds = 600
      @queue = :default
      @transactional_tests = false
      @recent_within_seconds = 3600
      @feature_enabled = ->(_flag) { true }
      @logger = Logger.new($stderr, level: Logger::WARN)
    end

    # Keeps the block that says whether a feature flag is on. Without one all are.
    #
    # @yieldparam flag [Symbol]
    def feature_enabled(&block)
      @feature_enabled = block
    end

    # Whether the feature flag is on.
    #
    # @param flag [Symbol]
    def feature_enabled?(flag)
      @feature_enabled.call(flag) ? true : false
    end

    # Refuses what cannot work.
    #
    # @raise [Error::Misconfigured] naming the setting, and what it has to be
    # @return [self]
    def validate!
      check(:address, "host and port of the claims server") { |value| value.to_s.match?(%r{\A[^\s/]+:\d+\z}) }
      check(:cell_id, "the number of this cell, 1 or more") { |value| value.is_a?(Integer) && value.positive? }
      check(:tls, "`{ ca:, certificate:, key: }`, or `{ insecure: true }`") { |value| value.is_a?(Hash) }
      %i[tries max_concurrent_begins circuit_failures].each do |name|
        check(name, "1 or more") { |value| value.is_a?(Integer) && value.positive? }
      end
      durations.each { |name| check(name, "more than 0") { |value| value.is_a?(Numeric) && value.positive? } }
      check(:commit_within_seconds, "less than `stale_after_seconds`, which is #{stale_after_seconds}") { |value| value < stale_after_seconds }
      self
    end

    private

    def durations
      instance_variables.map { |name| name.to_s.delete_prefix("@") }.grep(/_seconds\z/)
    end

    def check(name, wanted)
      value = public_send(name)
      return if yield(value)

      raise Error::Misconfigured, "`#{name}` is #{value.inspect}: say #{wanted}"
    end
  end
end
