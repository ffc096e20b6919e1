# frozen_string_literal: true

require "logger"

module Leasehold
  # The settings of a cell, set in `Leasehold.configure`.
  class Configuration
    UUID = /\A\h{8}(-\h{4}){3}-\h{12}\z/
    private_constant :UUID

    # @return [String] host and port of the claims server
    attr_accessor :address
    # @return [Integer] the id of this cell
    attr_accessor :cell_id
    # @return [Hash] `{ ca:, certificate:, key: }` with paths of PEM files; or `{ insecure: true }`
    #   for a connection without encryption and identity
    attr_accessor :tls
    # @return [String, nil] the id of the only store that this cell accepts, which a server prints at its start; nil
    #   for any store
    attr_accessor :store_id
    # @return [Numeric] deadline of one try of a call that a save makes
    attr_accessor :request_deadline_seconds
    # @return [Numeric] deadline of one try of a call of reconciliation
    attr_accessor :reconciliation_deadline_seconds
    # @return [Numeric] deadline of one try of a call of verification
    attr_accessor :verification_deadline_seconds
    # @return [Numeric] deadline of one try of a call for locks
    attr_accessor :lock_deadline_seconds
    # @return [Numeric] duration of this process's session for locks: time after a renewal for which the process
    #   may work
    attr_accessor :session_duration_seconds
    # @return [Numeric] time from the end of the duration until the server ends the session
    attr_accessor :session_grace_seconds
    # @return [String, nil] the first part of the names of the queues for ActiveJob; nil for none
    attr_accessor :job_queue_prefix
    # @return [Integer] the most attempts of a job of ActiveJob that raises an exception which the job does not handle
    attr_accessor :job_max_attempts
    # @return [Array<Class, String>, nil] classes, or their names, whose databases have an outbox: what is submitted in a
    #   transaction of one of them is written to its outbox (Q14). With nil, the server is called at once
    attr_accessor :outbox_databases
    # @return [Integer] number of tries of a call that gets no answer
    attr_accessor :tries
    # @return [Integer] maximum number of begins in flight in this process; further ones are refused
    #   at once
    attr_accessor :max_concurrent_begins
    # @return [Integer] the circuit opens after this number of consecutive begins without an answer
    attr_accessor :circuit_failures
    # @return [Numeric] duration for which an open circuit sends no begin
    attr_accessor :circuit_open_seconds
    # @return [Numeric] age from which reconciliation settles a lease in place of the process that
    #   began it
    attr_accessor :stale_after_seconds
    # @return [Integer] the database refuses the COMMIT of a transaction whose lease is older; the generated
    #   migration copies the number into the commit guard
    attr_accessor :commit_within_seconds
    # @return [Boolean] true if each transaction tells the database which rows its saves and destroys have written: a strict
    #   capture refuses all other changes of claimed columns
    attr_accessor :strict_claims
    # @return [Integer] number of rows that verification compares at a time
    attr_accessor :verification_page_rows
    # @return [Numeric] duration after which a verification job stops and schedules its continuation
    attr_accessor :verification_time_budget_seconds
    # @return [Numeric] largest share of a table's claims that a verification may destroy, from 0 to 1
    attr_accessor :verification_max_destroy_share
    # @return [Numeric] delay between the verifications of two models
    attr_accessor :verification_stagger_seconds
    # @return [Numeric] maximum random delay before the first scheduled verification
    attr_accessor :verification_jitter_seconds
    # @return [Boolean] true if `destroy` raises {ClaimsUnavailable} for a temporary refusal; false if `destroy`
    #   then returns false
    attr_accessor :raise_on_unavailable_destroy
    # @return [Array<Class>, nil] classes whose databases have a lease table. If it is nil, the claimable models
    #   are taken. An application with sharded databases must list a class for each shard.
    attr_accessor :lease_databases
    # @return [Symbol, nil] a flag that every claim needs besides its attribute's own flag, for example
    #   `:cells_unique_claims`; nil if there is none
    attr_accessor :global_feature_flag
    # @return [Boolean] true if verification jobs ask a feature flag for each model, such as
    #   `cells_claims_verification_worker_user`
    attr_accessor :verification_feature_flags
    # @return [Symbol] the form of a record's `cells_claims_metadata`: `:bucket` has the bucket's type and value,
    #   `:claim` the field of a claim message
    attr_accessor :metadata_form
    # @return [Symbol] the place of the error for a taken value. `:attribute` puts the error on the attribute.
    #   `:base` puts it on the record, with the type `<attributes>_taken`; such an error does not tell which
    #   attribute is taken.
    attr_accessor :taken_errors_on
    # @return [Boolean] true if a text primary key that looks like a UUID has the UUID's 16 bytes as its source id;
    #   false if every text is its own source id
    attr_accessor :uuid_texts_as_bytes
    # @return [Symbol] the queue of the gem's jobs
    attr_accessor :queue
    # @return [Boolean] true if each test runs in transactions with `joinable: false` that are rolled
    #   back; a savepoint inside then counts as the database's own transaction
    attr_accessor :transactional_tests
    # @return [Numeric] verification leaves rows and claims alone that changed within this time
    attr_accessor :recent_within_seconds
    # @return [Logger] the logger of the gem's events
    attr_accessor :logger

    # Reads `address`, `cell_id` and `tls` from the environment: `LEASEHOLD_ADDRESS`, `LEASEHOLD_CELL_ID`, and the
    # paths `LEASEHOLD_CA`, `LEASEHOLD_CERT` and `LEASEHOLD_KEY`.
    def initialize
      read_environment
      @request_deadline_seconds = 0.3
      @reconciliation_deadline_seconds = 1
      @verification_deadline_seconds = 10
      @lock_deadline_seconds = 3
      @session_duration_seconds = 15
      @session_grace_seconds = 5
      @job_queue_prefix = "jobs"
      @job_max_attempts = 25
      @tries = 2
      @max_concurrent_begins = 300
      @circuit_failures = 10
      @circuit_open_seconds = 5
      @stale_after_seconds = 600
      @commit_within_seconds = 300
      @strict_claims = false
      @verification_page_rows = 1000
      @verification_time_budget_seconds = 270
      @verification_max_destroy_share = 0.1
      @verification_stagger_seconds = 600
      @verification_jitter_seconds = 600
      @raise_on_unavailable_destroy = true
      @verification_feature_flags = true
      @metadata_form = :bucket
      @taken_errors_on = :attribute
      @uuid_texts_as_bytes = false
      @queue = :default
      @transactional_tests = false
      @recent_within_seconds = 3600
      @feature_enabled = ->(_flag) { true }
      @organization_id = nil
      @logger = Logger.new($stderr, level: Logger::WARN)
    end

    # Sets the block that decides whether a feature flag is on. Until it is set, all flags are on.
    #
    # @yieldparam flag [Symbol]
    # @raise [ArgumentError] if no block is given
    def feature_enabled(&block)
      @feature_enabled = block || raise(ArgumentError, "`feature_enabled` has no block: pass one, or ask a flag by `feature_enabled?`")
    end

    # Returns true if the feature flag is on.
    #
    # @param flag [Symbol]
    def feature_enabled?(flag)
      @feature_enabled.call(flag) ? true : false
    end

    # Sets the block that returns the id of the organization that a save is for, or nil. The begin of the save
    # carries the id, and the server keeps it with the lease. Until the block is set, begins carry none.
    #
    # @yieldreturn [Integer, nil]
    # @raise [ArgumentError] if no block is given
    def organization_id(&block)
      @organization_id = block || raise(ArgumentError, "`organization_id` has no block: pass one that returns an id or nil")
    end

    # Returns the id of the organization that the current save is for; nil if there is none.
    #
    # @return [Integer, nil]
    def current_organization_id
      @organization_id&.call
    end

    # Checks the settings.
    #
    # @raise [Error::Misconfigured] if one is invalid; the message names the setting and its allowed
    #   values
    # @return [self]
    def validate!
      check(:cell_id, "the number of this cell, 1 or more") { |value| value.is_a?(Integer) && value.positive? }
      validate_connection!
      check(:verification_max_destroy_share, "a share from 0 to 1") { |value| value.is_a?(Numeric) && value.between?(0, 1) }
      check(:taken_errors_on, "`:attribute` or `:base`") { |value| %i[attribute base].include?(value) }
      check(:metadata_form, "`:bucket` or `:claim`") { |value| %i[bucket claim].include?(value) }
      check(:commit_within_seconds, "less than `stale_after_seconds`, which is #{stale_after_seconds}") do |value|
        value < stale_after_seconds
      end
      self
    end

    # Checks the settings that locks need. A service that only uses locks has no `cell_id`.
    #
    # @raise [Error::Misconfigured]
    # @return [self]
    def validate_connection!
      check(:address, "host and port of the claims server, without `http://`") { |value| value.to_s.match?(%r{\A[^\s/]+:\d+\z}) }
      check(:store_id, "the UUID that the server prints as `store`, or nil") { |value| value.nil? || UUID.match?(value.to_s) }
      check(:tls, "`{ ca:, certificate:, key: }`, or `{ insecure: true }`") { |value| value.is_a?(Hash) }
      %i[tries max_concurrent_begins circuit_failures job_max_attempts].each do |name|
        check(name, "1 or more") { |value| value.is_a?(Integer) && value.positive? }
      end
      durations.each { |name| check(name, "more than 0") { |value| value.is_a?(Numeric) && value.positive? } }
      self
    end

    private

    def read_environment
      address, id, ca, certificate, key = %w[ADDRESS CELL_ID CA CERT KEY].map { |name| ENV.fetch("LEASEHOLD_#{name}", nil) }
      @address = address
      # A text that is no number is kept, so that `validate!` can show it.
      @cell_id = id && (Integer(id, 10, exception: false) || id)
      @tls = { ca: ca, certificate: certificate, key: key } if ca
    end

    def durations
      instance_variables.map { |name| name.to_s.delete_prefix("@") }.grep(/_seconds\z/)
    end

    def check(name, allowed)
      value = public_send(name)
      return if yield(value)

      raise Error::Misconfigured, "`#{name}` is #{value.inspect}: set it to #{allowed}"
    end
  end
end
