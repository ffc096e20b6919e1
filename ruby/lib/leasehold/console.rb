# frozen_string_literal: true

require "leasehold/rails"

module Leasehold
  # Jobs run by hand: what they do, on a terminal.
  class Console
    # Whether a variable of the environment asks for something.
    def self.asked?(name)
      !ENV[name].to_s.match?(/\A(|0|false)\z/)
    end

    # @param dry_run [Boolean] only tell
    # @param resume [Boolean] verify from where a job has stopped, not from the beginning
    def initialize(output: $stdout, dry_run: Console.asked?("DRY_RUN"), resume: Console.asked?("RESUME"))
      @output = output
      @dry_run = dry_run
      @resume = resume
    end

    # Settles what was left unsettled.
    def reconcile
      summary = Reconciler.new(dry_run: @dry_run) { |step| tell_plan(step) if @dry_run }.run
      tell(summary)
    end

    # Verifies models one after the other.
    def verify(names)
      names.each do |name|
        @output.puts "#{name}#{' (dry run)' if @dry_run}"
        findings { report(name) }
      end
    end

    private

    def report(name)
      report = Verifier.new(Models.fetch(name), dry_run: @dry_run, resume: @resume) { |so_far| progress(so_far) }.run
      @output.print "\r\e[K" if @output.tty?
      report ? tell(report) : @output.puts("  another run is under way")
    end

    def progress(report)
      return unless @output.tty?

      counts = report.select { |_, count| count.is_a?(Integer) && count.positive? }
      @output.print "\r\e[K  #{counts.map { |name, count| "#{name} #{count}" }.join(', ')}"
    end

    def findings(&work)
      tell = lambda do |*, payload|
        @output.print "\r\e[K" if @output.tty?
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
