# frozen_string_literal: true

require "leasehold/rails"
require_relative "uncached"
require_relative "verification"
require_relative "verifier/row_reader"
require_relative "verifier/page_reader"
require_relative "verifier/progress"
require_relative "verifier/corrections"

module Leasehold
  # Runs a {Verification} for one model: executes the steps that the session requests, and feeds
  # their results back. The session alone decides which claims differ and how to correct them.
  class Verifier
    # Names in the report of a dry run, for corrections that are only planned.
    PLANNED = { created: :to_create, replaced: :to_replace, destroyed: :to_destroy }.freeze

    # @return [Float] seconds of a monotonic clock
    def self.now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # @param model [Class] a model with claims
    # @param dry_run [Boolean] true to report differences without correcting them
    # @param resume [Boolean] true to continue from the checkpoint of the last run
    # @param time_budget_seconds [Numeric, nil] duration after which the run stops at the end of a
    #   page
    # @param allow_empty [Boolean] true to destroy all claims of a table without rows
    # @param max_destroy_share [Numeric, nil] largest share of the table's claims that the run may destroy
    #   (V11); nil for `verification_max_destroy_share`
    # @yieldparam report [Hash{Symbol => Integer}] after each page
    def initialize(
      model, client: Leasehold.client, dry_run: false, resume: true, time_budget_seconds: nil, allow_empty: false,
      max_destroy_share: nil, &progress
    )
      @model = model
      @client = client
      @configuration = Leasehold.configuration
      @dry_run = dry_run
      @resume = resume
      @time_budget_seconds = time_budget_seconds
      @allow_empty = allow_empty
      @max_destroy_share = max_destroy_share || @configuration.verification_max_destroy_share
      @report_progress = progress
      @rows = row_reader
      @pages = PageReader.new(@rows) { |step| list(step) }
    end

    # Verifies the model, to the end or until the time budget is used. Returns nil if another run for the model
    # is in progress (V10), or a {Release} for its table.
    #
    # If the flags of all attributes are off, the run reads nothing and changes nothing (V11). The
    # report then has `disabled: true` and no counts. In the report of a dry run,
    # `over_destroy_limit` is true if a run that corrects would stop for `max_destroy_share`.
    #
    # @raise [Error::Misconfigured] if the model cannot be verified, its table has claims but no
    #   rows, or the run would destroy more claims than `max_destroy_share` permits
    # @raise [ActiveRecord::TransactionIsolationError] if a transaction is open
    # @return [Hash{Symbol => Object}, nil] the report, with `finished`
    def run
      return report_disabled if @rows.bucket_types.empty?

      Uncached.run { ActiveRecordCompat.with_connection(@model.connection_pool) { |connection| run_over(connection) } }
    end

    private

    def row_reader
      RowReader.new(@model)
    end

    def progress_of(connection)
      Progress.new(@model, connection, dry_run: @dry_run)
    end

    def recent_within_seconds
      @configuration.recent_within_seconds
    end

    def report_disabled
      Events.publish(:verification_disabled, model: @model.name, dry_run: @dry_run)
      { dry_run: @dry_run, disabled: true, failed: 0, finished: true }
    end

    def run_over(connection)
      @corrections = Corrections.new(connection, @client)
      check
      progress = progress_of(connection)
      progress.exclusively do
        Events.measure(:verify, model: @model.name, dry_run: @dry_run) do |event|
          finished = session_from(@resume ? progress.checkpoint : nil) && follow(progress)
          @corrections.finish
          report.merge(finished: finished).tap { |report| event.merge!(report) }
        ensure
          @corrections.abandon
        end
      end
    end

    def check
      Models.check_distinct(@model)
      @rows.check
      return if @dry_run

      @rows.check_lockable
      @corrections.check
      check_emptied
    end

    # Refuses a table without rows: after a TRUNCATE, or in the wrong database, verification would
    # destroy all claims at once.
    def check_emptied
      return if @rows.bound(nil, 1) || other_class_has_rows?
      return @max_destroy_share = 1 if @allow_empty
      return if list(Verification::ListRecords.new).records.empty?

      raise Error::Misconfigured,
            "`#{@model.name}` has claims but no rows, so all of its claims would be destroyed: check that its table is the " \
            "right one; to destroy them, pass `allow_empty: true` (rake task: `ALLOW_EMPTY=1`)"
    end

    # Returns true if the model is a subclass (STI) and its table has rows. The claims of the other classes'
    # rows have the same source type. They count as claims without a row only until these rows are read again.
    def other_class_has_rows?
      !@model.base_class? && @model.base_class.unscoped.exists?
    end

    def session_from(checkpoint)
      @session = Verification.new(
        source_type: @model.cells_claims_source_type, bucket_types: @rows.bucket_types, dry_run: @dry_run,
        recent_within_seconds: recent_within_seconds, rows_per_page: @configuration.verification_page_rows,
        max_destroy_share: @max_destroy_share, checkpoint: checkpoint
      )
    end

    # Runs the session until it is done or the time budget is used.
    #
    # @return [Boolean] true if the run reached the end
    def follow(progress)
      deadline = Verifier.now + @time_budget_seconds if @time_budget_seconds
      stopped = false
      until (step = @session.next).is_a?(Verification::Done)
        next perform(step, progress) unless step.is_a?(Verification::PageDone)

        store_progress(progress)
        stopped = deadline && Verifier.now > deadline
        stopped ? @session.stop : @session.proceed
      end
      store_progress(progress)
      !stopped || @session.checkpoint.nil?
    end

    def store_progress(progress)
      progress.check_session
      progress.store(@session.checkpoint)
      @session.take_findings.each { |finding| publish(finding) }
      @report_progress&.call(report)
    end

    def publish(finding)
      outcome = finding.fetch(:outcome)
      outcome = PLANNED.fetch(outcome.to_sym, outcome).to_s if @dry_run
      Events.publish(:finding, model: @model.name, **finding, outcome: outcome)
    end

    def report
      return @session.report unless @dry_run

      @session.report.transform_keys { |name| PLANNED.fetch(name, name) }
    end

    def perform(step, progress)
      case step
      when Verification::FindBound then @session.bound(@pages.fetch(step))
      when Verification::ListRecords then @session.records(@pages.fetch(step))
      when Verification::ReadRows then @rows.feed(@session, @pages.fetch(step))
      when Verification::ReadAgain then @rows.feed_again(@session, step.ids)
      when Verification::Begin then @session.updated(begin_correction(step, progress))
      when Verification::Commit then @session.updated(@corrections.commit)
      when Verification::RollBack then @session.updated(@corrections.roll_back)
      when Verification::Refused then refuse(step, progress)
      end
    end

    # Stores the checkpoint, so that a run with a larger share goes on where this one stops (V11).
    def refuse(refusal, progress)
      @corrections.finish
      store_progress(progress)
      share = refusal.needed_share
      raise Error::Misconfigured.new(
        "verification would destroy #{refusal.destroys} of the #{refusal.claims} claims of `#{@model.name}`, more than the share " \
        "of #{@max_destroy_share}: check its table, scope and conditions with a dry run; to destroy them, pass " \
        "`max_destroy_share: #{share}` (rake task: `MAX_DESTROY_SHARE=#{share}`)", code: "TOO_MANY_DESTROYS"
      )
    end

    def begin_correction(step, progress)
      progress.check_session
      @corrections.begin(step) { |call| @pages.read_ahead { call.alive? } }
    end

    def list(step)
      @client.list_records(
        source_type: @model.cells_claims_source_type, bucket_types: @rows.bucket_types, after: step.after, upto: step.upto,
        deadline_seconds: @configuration.verification_deadline_seconds
      )
    end
  end
end
