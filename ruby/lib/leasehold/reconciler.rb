# frozen_string_literal: true

require "leasehold/rails"
require_relative "reconciliation"

module Leasehold
  # Runs a {Reconciliation} for this cell: does what the session asks for, and feeds back what came of it. What becomes
  # of a lease is the session's decision alone. Several at once do no harm (R05).
  class Reconciler
    # What the refusals of a settle say to the session.
    ANSWERS = { Error::RolledBack => :rolled_back, Error::Committed => :committed, Error::NotFound => :not_found }.freeze
    # What a session is told of as a failure of its step.
    FAILURES = [Error, ActiveRecord::ActiveRecordError].freeze

    # So many failures are kept to be told; all are counted.
    FAILURES_KEPT = 100

    # A step that failed, the lease that it was about, if any, and why.
    Failure = Struct.new(:step, :lease, :error) do
      # In words for people.
      def what
        [step.titleize.downcase, lease].compact.join(" ")
      end
    end

    # @return [Array<Failure>] what the run could not do, and left to the next: the first ones
    attr_reader :failures

    # @param dry_run [Boolean] tell what would be settled and deleted, and do nothing
    # @yieldparam step [Struct] of {Reconciliation}, before it is done
    def initialize(tables: LeaseTables.of_cell, client: Leasehold.client, dry_run: false, &progress)
      @tables = tables
      @client = client
      @deadline_seconds = Leasehold.configuration.reconciliation_deadline_seconds
      @stale_after_seconds = Leasehold.configuration.stale_after_seconds
      @session = Reconciliation.new(stale_after_seconds: @stale_after_seconds)
      @dry_run = dry_run
      @planned = 0
      @failures = []
      @progress = progress
    end

    # Looks at every outstanding lease and at every local row once. One step that fails stops no other (R05): {#failures}
    # has them.
    #
    # @return [Hash{Symbol => Object}] the session's summary; of a dry run also how much it would do, as `planned`
    def run
      Events.measure(:reconcile, dry_run: @dry_run) do |event|
        event[:guarded] = guarded?
        step until finished?
        summary.tap { |counts| event.merge!(counts) }
      end
    end

    # Whether no transaction can be committed under a lease that a run gives up (R04).
    def guarded?
      @tables.guarded?(@stale_after_seconds)
    end

    private

    def finished?
      @session.next.is_a?(Reconciliation::Done)
    end

    def step
      step = @session.next
      @progress&.call(step)
      @dry_run && changes?(step) ? plan : perform(step)
    rescue *FAILURES => error
      note(Failure.new(step.class.name.demodulize, step.to_h[:lease], error))
      @session.failed
    end

    def note(failure)
      @failures << failure if @failures.size < FAILURES_KEPT
      error = failure.error
      Events.publish(:reconcile_failed, step: failure.step, lease: failure.lease, error: error.class.name, message: error.message)
    end

    # What was not done is left for the next run, as what has failed is.
    def plan
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
      when Reconciliation::FindRows then rows(*@tables.find(step.leases))
      when Reconciliation::ListRows then rows(*@tables.list(**step.to_h))
      when Reconciliation::Settle then @session.settled(settle(step))
      when Reconciliation::DeleteRow then delete(step)
      end
    end

    def rows(rows, now)
      @session.rows(rows, now: now)
    end

    def settle(step)
      if step.outcome == :committed
        @client.commit_update(step.lease, deadline_seconds: @deadline_seconds)
      else
        @client.rollback_update(step.lease, deadline_seconds: @deadline_seconds)
      end
      :done
    rescue *ANSWERS.keys => error
      ANSWERS.fetch(error.class)
    end

    # A lost lease is told before its last trace goes.
    def delete(step)
      Events.publish(:lost, lease: step.lease) if step.fate == :lost
      @tables.delete(step.lease)
      @session.deleted
    end
  end
end
