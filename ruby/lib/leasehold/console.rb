# frozen_string_literal: true

require "leasehold/rails"

module Leasehold
  # Jobs run by hand: what they do, on a terminal.
  class Console
    # So many findings of each outcome are shown, unless `SAMPLES` says otherwise: the first filling of a large table has one
    # of each claim.
    SAMPLES = 10

    # Reconciliation may give up a lease whose transaction is committed after it (R04).
    UNGUARDED = "warning: a transaction may be committed after its lease was given up, and two cells hold one name then: see that " \
                "`#{LeaseTable::NAME}` has its trigger, and that the trigger's seconds are less than `stale_after_seconds`"

    # Something could not be done: the message says what, why and what to do.
    class Failed < StandardError
      # @return [Integer] the exit code
      attr_reader :status

      # @param statuses [Array<Integer>] of all that has failed; what has no code in common ends with that of other reasons
      def initialize(message, statuses)
        super(message)
        @status = statuses.uniq.one? ? statuses.first : Remedy::OTHER
      end
    end

    # Somebody else verifies the model (V10).
    UnderWay = Class.new(StandardError)
    # The run got to the end, but calls failed on the way.
    Left = Class.new(StandardError)

    autoload :Findings, "leasehold/console/findings"
    autoload :Remedy, "leasehold/console/remedy"

    class << self
      # Whether a variable of the environment asks for something.
      def asked?(name)
        !ENV[name].to_s.match?(/\A(|0|f|false|n|no|off)\z/i)
      end

      # Runs the block for a command of a shell: what fails is told on standard error, and by the exit code.
      #
      # @yieldparam console [Console]
      def run
        yield new
      rescue Failed => error
        warn error.message
        exit error.status
      end

      # How many findings of each outcome to show.
      #
      # @raise [Failed] `SAMPLES` is no number of them
      def samples
        asked = ENV["SAMPLES"].presence or return SAMPLES
        return asked.to_i if asked.match?(/\A\d+\z/)

        raise Failed.new("`SAMPLES` is `#{asked}`: say how many findings to show, such as `100`", [Remedy::WRONG])
      end
    end

    # @param dry_run [Boolean] only tell
    # @param resume [Boolean] verify from where a job has stopped, not from the beginning
    # @param allow_empty [Boolean] give up the claims of tables without rows
    # @param samples [Integer] findings of each outcome that are shown
    def initialize(output: $stdout, dry_run: Console.asked?("DRY_RUN"), resume: Console.asked?("RESUME"),
                   allow_empty: Console.asked?("ALLOW_EMPTY"), samples: Console.samples)
      @output = output
      @dry_run = dry_run
      @resume = resume
      @allow_empty = allow_empty
      @samples = samples
    end

    # Settles what was left unsettled.
    #
    # @raise [Failed] something is left to the next run
    def reconcile
      failures = expecting { settle }.uniq { |failure| [failure.step, failure.error.class, failure.error.message] }
      return if failures.empty?

      remedies = failures.map { |failure| Remedy.of(failure.error) }
      lines = failures.zip(remedies).map { |failure, remedy| "  #{failure.what}: #{remedy}" }
      raise Failed.new("not all is reconciled, the next run tries again:\n#{lines.join("\n")}", remedies.map(&:status))
    end

    # Verifies models one after the other; of several, those too that come after one that can't be.
    #
    # @raise [Failed] naming those that couldn't be
    def verify(names)
      return expecting("not verified: ") { verify_one(names.first) } if names.one?

      failed = names.index_with { |name| failure(name) }.compact
      return if failed.empty?

      models = failed.keys.map { |name| "`#{name}`" }.join(", ")
      raise Failed.new("not verified: #{models}; see above why", failed.values)
    end

    private

    # The step of each that has failed is told, too.
    def settle
      reconciler = Reconciler.new(dry_run: @dry_run) { |step| tell_plan(step) if @dry_run }
      warn UNGUARDED unless reconciler.guarded?
      tell(reconciler.run)
      reconciler.failures
    end

    # Errors that nobody has expected come with their backtrace.
    def expecting(what = "")
      yield
    rescue StandardError => error
      remedy = Remedy.of(error) or raise
      clear_line
      raise Failed.new("#{what}#{remedy}", [remedy.status])
    end

    # What there is to say of a model among others, told; nil where it is verified.
    #
    # @return [Integer, nil] the exit code
    def failure(name)
      verify_one(name)
      nil
    rescue StandardError => error
      remedy = Remedy.of(error)
      clear_line
      @output.puts "  #{remedy || "#{error.class}: #{error.message}"}"
      remedy ? remedy.status : Remedy::OTHER
    end

    def verify_one(name)
      @output.puts "#{name}#{' (dry run)' if @dry_run}"
      model = Models.fetch(name)
      options = { dry_run: @dry_run, resume: @resume, allow_empty: @allow_empty }
      report = findings { Verifier.new(model, **options) { |so_far| progress(so_far) }.run }
      clear_line
      raise UnderWay, "another run for `#{name}` is under way" unless report

      tell(report)
      raise Left, "calls failed for #{report[:failed]} corrections of `#{name}`" if report[:failed].positive?
    end

    # Of progress, on a terminal.
    def clear_line
      @output.print "\r\e[K" if @output.tty?
    end

    def progress(report)
      return unless @output.tty?

      counts = report.select { |_, count| count.is_a?(Integer) && count.positive? }
      @output.print "\r\e[K  #{counts.map { |name, count| "#{name} #{count}" }.join(', ')}"
    end

    # Tells the first findings of each outcome while the block runs, and how many more there were after it.
    def findings(&work)
      found = Findings.new(@samples) do |line|
        clear_line
        @output.puts "  #{line}"
      end
      ActiveSupport::Notifications.subscribed(->(*, payload) { found.add(payload) }, "finding.leasehold", &work)
    ensure
      found.tell_rest
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
