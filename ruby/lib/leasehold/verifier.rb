# frozen_string_literal: true

require "leasehold/rails"
require_relative "uncached"
require_relative "verification"
require_relative "verifier/rows"
require_relative "verifier/pages"
require_relative "verifier/progress"
require_relative "verifier/updates"

module Leasehold
  # Runs a {Verification} for one model: does what the session asks for, and feeds back what came of it. What differs, and
  # what to do about it, is the session's decision alone.
  class Verifier
    # What a dry run calls that which it only plans.
    PLANNED = { created: :to_create, replaced: :to_replace, destroyed: :to_destroy }.freeze

    # Seconds of a clock that nobody sets.
    def self.now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # @param model [Class] that claims
    # @param dry_run [Boolean] tell what differs, and correct nothing
    # @param resume [Boolean] go on where the last run stopped, if it did
    # @param time_budget_seconds [Numeric, nil] stop after the page at which this has passed
    # @param allow_empty [Boolean] believe a table without rows, and give up every claim that was made for it
    # @yieldparam report [Hash{Symbol => Integer}] after each page
    def initialize(
      model, client: Leasehold.client, dry_run: false, resume: true, time_budget_seconds: nil, allow_empty: false, &progress
    )
      @model = model
      @client = client
      @configuration = Leasehold.configuration
      @dry_run = dry_run
      @resume = resume
      @time_budget_seconds = time_budget_seconds
      @allow_empty = allow_empty
      @progress = progress
      @rows = Rows.new(model)
      @pages = Pages.new(@rows) { |step| list(step) }
      @updates = Updates.new(model, client)
    end

    # Goes to the end, or as far as the budget goes. Two at once for one model are not allowed (V10): the second does nothing.
    #
    # @raise [Error::Misconfigured] the model can't be verified as it is, or its table has no rows, but claims. Nothing was
    #   corrected
    # @raise [ActiveRecord::TransactionIsolationError] a transaction is open
    # @return [Hash{Symbol => Object}, nil] the report, with `finished`; nil where another run is under way
    def run
      Uncached.run { run_uncached }
    end

    private

    def run_uncached
      check
      kept = Progress.new(@model, dry_run: @dry_run)
      kept.exclusively do
        Events.measure(:verify, model: @model.name, dry_run: @dry_run) do |event|
          finished = session_from(@resume ? kept.checkpoint : nil) && follow(kept)
          @updates.finish
          report.merge(finished: finished).tap { |report| event.merge!(report) }
        ensure
          @updates.abandon
        end
      end
    end

    def check
      Models.check_apart(@model)
      @rows.check
      return if @dry_run

      @rows.check_lockable
      @updates.check
      check_emptied unless @allow_empty
    end

    # A table that was truncated, or is another than is meant, would give up all claims at once.
    def check_emptied
      return if @rows.bucket_types.empty? || @rows.bound(nil, 1) || list(Verification::ListRecords.new).records.empty?

      raise Error::Misconfigured, "`#{@model.name}` has no rows, so that every claim made for it would be given up: see that " \
                                  "its table is the right one, and say `allow_empty` if so (by hand, `ALLOW_EMPTY=1`)"
    end

    def session_from(checkpoint)
      @session = Verification.new(
        source_type: @model.cells_claims_source_type, bucket_types: @rows.bucket_types, dry_run: @dry_run,
        recent_within_seconds: @configuration.recent_within_seconds, rows_per_page: @configuration.verification_page_rows,
        checkpoint: checkpoint
      )
    end

    # Whether it got to the end.
    def follow(kept)
      deadline = Verifier.now + @time_budget_seconds if @time_budget_seconds
      stopped = false
      until (step = @session.next).is_a?(Verification::Done)
        next perform(step) unless step.is_a?(Verification::PageDone)

        keep(kept)
        stopped = deadline && Verifier.now > deadline
        stopped ? @session.stop : @session.proceed
      end
      keep(kept)
      !stopped || @session.checkpoint.nil?
    end

    def keep(kept)
      kept.store(@session.checkpoint)
      @session.take_findings.each { |finding| tell(finding) }
      @progress&.call(report)
    end

    def tell(finding)
      outcome = finding.fetch(:outcome)
      outcome = PLANNED.fetch(outcome.to_sym, outcome).to_s if @dry_run
      Events.publish(:finding, model: @model.name, **finding, outcome: outcome)
    end

    def report
      @dry_run ? @session.report.transform_keys { |name| PLANNED.fetch(name, name) } : @session.report
    end

    def perform(step)
      case step
      when Verification::FindBound then @session.bound(@pages.answer(step))
      when Verification::ListRecords then @session.records(@pages.answer(step))
      when Verification::ReadRows then @rows.feed(@session, @pages.answer(step))
      when Verification::ReadAgain then @rows.feed_again(@session, step.ids)
      when Verification::Begin then @session.updated(@updates.begin(step) { |call| @pages.read_ahead { call.alive? } })
      when Verification::Commit then @session.updated(@updates.commit)
      when Verification::RollBack then @session.updated(@updates.roll_back)
      end
    end

    def list(step)
      @client.list_records(
        source_type: @model.cells_claims_source_type, bucket_types: @rows.bucket_types, after: step.after, upto: step.upto,
        deadline_seconds: @configuration.verification_deadline_seconds
      )
    end
  end
end
