# frozen_string_literal: true

require "leasehold/rails"

module Leasehold
  # Jobs run by hand: what they do, on a terminal.
  class Console
    # Some models could not be verified.
    Failed = Class.new(StandardError)

    # Whether a variable of the environment asks for something.
    def self.asked?(name)
      !ENV[name].to_s.match?(/\A(|0|false)\z/)
    end

    # @param dry_run [Boolean] only tell
    # @param resume [Boolean] verify from where a job has stopped, not from the beginning
    # @param allow_empty [Boolean] give up the claims of tables without rows
    def initialize(output: $stdout, dry_run: Console.asked?("DRY_RUN"), resume: Console.asked?("RESUME"),
                   allow_empty: Console.asked?("ALLOW_EMPTY"))
      @output = output
      @dry_run = dry_run
      @resume = resume
      @allow_empty = allow_empty
    end

    # Settles what was left unsettled.
    def reconcile
      summary = Reconciler.new(dry_run: @dry_run) { |step| tell_plan(step) if @dry_run }.run
      tell(summary)
    end

    # Verifies models one after the other; of several, those too that come after one that can't be.
    #
    # @raise [Failed] naming those that couldn't be
    def verify(names)
      failed = names.reject do |name|
        @output.puts "#{name}#{' (dry run)' if @dry_run}"
        findings { report(name) }
        true
      rescue StandardError => error
        raise if names.one?

        tell_failure(error)
      end
      raise Failed, "not verified: #{failed.map { |name| "`#{name}`" }.join(', ')}; see above why" if failed.any?
    end

    private

    def tell_failure(error)
      clear_line
      @output.puts "  #{error.class}: #{error.message}"
    end

    # Of progress, on a terminal.
    def clear_line
      @output.print "\r\e[K" if @output.tty?
    end

    def report(name)
      options = { dry_run: @dry_run, resume: @resume, allow_empty: @allow_empty }
      report = Verifier.new(Models.fetch(name), **options) { |so_far| progress(so_far) }.run
      clear_line
      report ? tell(report) : @output.puts("  another run is under way")
    end

    def progress(report)
      return unless @output.tty?

      counts = report.select { |_, count| count.is_a?(Integer) && count.positive? }
      @output.print "\r\e[K  #{counts.map { |name, count| "#{name} #{count}" }.join(', ')}"
    end

    def findings(&work)
      tell = lambda do |*, payload|
        clear_line
        @output.puts "  #{payload.except(:model).map { |name, value| "#{name}=#{value}" }.join(' ')}"
      end
      ActiveSupport::Notifications.subscribed(tell, "finding.leasehold", &work)
    end

    def tell_plan(step)
      case step
      when Reconciliation::Settle then @output.puts "  would settle #{step.lease}: #{step.outcome}"
      when Reconciliation::DeleteRow then @output.puts "  would delete the row of #{step.lease}: #{step.fate}"
      end
    end

    def tell(counts)
      counts.each { |name, count| @output.puts "  #{name.to_s.tr('_', ' ').ljust(24)} #{count}" }
    end
  end
end
