# frozen_string_literal: true

require "leasehold/rails"
require_relative "reconciliation"

module Leasehold
  # Runs a {Reconciliation} for this cell: executes the steps that the session requests, and feeds
  # their results back. The session alone decides how a lease is settled. Several runs at once do no
  # harm (R05).
  class Reconciler
    # Answers to feed to the session, by the error with which the server refuses to settle a lease.
    SETTLE_ANSWERS = { Error::RolledBack => :rolled_back, Error::Committed => :committed, Error::NotFound => :not_found }.freeze
    # Errors that are fed to the session as a failure of the step.
    EXPECTED_ERRORS = [Error, ActiveRecord::ActiveRecordError].freeze

    # Maximum number of failures in {#failures}; the summary counts all of them.
    MAX_RECORDED_FAILURES = 100

    # A failed step, the lease it concerns (nil for none), and the error.
    Failure = Struct.new(:step, :lease, :error) do
      # @return [String] the step and its lease, in words
      def description
        [step.titleize.downcase, lease].compact.join(" ")
      end
    end

    # @return [Array<Failure>] the first failures of the run; the next run tries those steps again
    attr_reader :failures

    # @param dry_run [Boolean] true to report the steps without settling or deleting anything
    # @yieldparam step [Struct] a step of {Reconciliation}, before it is executed
    def initialize(tables: LeaseTables.of_cell, client: Leasehold.client, dry_run: false, &before_step)
      @tables = tables
      @client = client
      @deadline_seconds = Leasehold.configuration.reconciliation_deadline_seconds
      @stale_after_seconds = Leasehold.configuration.stale_after_seconds
      @session = Reconciliation.new(stale_after_seconds: @stale_after_seconds)
      @dry_run = dry_run
      @planned = 0
      @failures = []
      @before_step = before_step
    end

    # Examines every outstanding lease and every local row once. A step that fails stops no other
    # (R05); see {#failures}.
    #
    # @return [Hash{Symbol => Object}] the session's summary; for a dry run also the number of
    #   skipped steps as `planned`
    def run
      Events.measure(:reconcile, dry_run: @dry_run) do |event|
        event[:guarded] = guarded?
        step until finished?
        summary.tap { |counts| event.merge!(counts) }
      end
    end

    # Returns true if no transaction can COMMIT under a lease that a run rolls back (R04).
    def guarded?
      @tables.guarded?(@stale_after_seconds)
    end

    private

    def finished?
      @session.next.is_a?(Reconciliation::Done)
    end

    def step
      step = @session.next
      @before_step&.call(step)
      @dry_run && changes?(step) ? skip : perform(step)
    rescue *EXPECTED_ERRORS => error
      record_failure(Failure.new(step.class.name.demodulize, step.to_h[:lease], error))
      @session.failed
    end

    def record_failure(failure)
      @failures << failure if @failures.size < MAX_RECORDED_FAILURES
      error = failure.error
      Events.publish(:reconcile_failed, step: failure.step, lease: failure.lease, error: error.class.name, message: error.message)
    end

    # Counts a step of a dry run as planned instead of performing it. The session notes it as failed and
    # continues with the next step.
    def skip
      @planned += 1
      @session.failed
    end

    def summary
      counts = @session.summary
      @dry_run ? counts.merge(failed: counts.fetch(:failed) - @planned, planned: @planned) : counts
    end

    def changes?(step)
      step.is_a?(Reconciliation::Settle) || step.is_a?(Reconciliation::DeleteRow)
    end

    def perform(step)
      case step
      when Reconciliation::ListLeases
        @session.leases(@client.list_leases(cursor: step.cursor, deadline_seconds: @deadline_seconds))
      when Reconciliation::FindRows then feed_rows(*@tables.find(step.leases))
      when Reconciliation::ListRows then feed_rows(*@tables.list(**step.to_h))
      when Reconciliation::Settle then @session.settled(settle(step))
      when Reconciliation::DeleteRow then delete(step)
      end
    end

    def feed_rows(rows, now)
      @session.rows(rows, now: now)
    end

    def settle(step)
      if step.outcome == :committed
        @client.commit_update(step.lease, deadline_seconds: @deadline_seconds)
      else
        @client.rollback_update(step.lease, deadline_seconds: @deadline_seconds)
      end
      :done
    rescue *SETTLE_ANSWERS.keys => error
      SETTLE_ANSWERS.fetch(error.class)
    end

    # Deletes the local row of a settled lease. Publishes a lost lease first, because its row is the last
    # trace of the lease.
    def delete(step)
      Events.publish(:lost, lease: step.lease) if step.fate == :lost
      @tables.delete(step.lease)
      @session.deleted
    end
  end
end
