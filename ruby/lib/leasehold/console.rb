# frozen_string_literal: true

require "leasehold/rails"

module Leasehold
  # The work of the rake tasks: reconciles leases, verifies models, checks the setup and releases claims,
  # with output for a terminal.
  class Console
    # Number of findings shown of each outcome, unless the environment variable `SAMPLES` is set.
    # The first run on a large table has a finding per claim.
    SAMPLES = 10

    # Warns that reconciliation may roll back a lease whose transaction is committed afterwards
    # (R04).
    UNGUARDED_WARNING = "warning: a transaction may be committed after its lease was rolled back, and two cells may then own " \
                        "one name: check that `#{LeaseTable::NAME}` has its trigger, with fewer seconds than " \
                        "`stale_after_seconds`"

    # A task failed. The message names the problem, its cause and the remedy.
    class Failed < StandardError
      # @return [Integer] the exit code
      attr_reader :status

      # @param statuses [Array<Integer>] exit codes of all failures; if they differ, the exit code
      #   is {Remedy::EXIT_OTHER}
      def initialize(message, statuses)
        super(message)
        @status = statuses.uniq.one? ? statuses.first : Remedy::EXIT_OTHER
      end
    end

    # Raised if another run verifies the model (V10).
    AlreadyRunning = Class.new(StandardError)
    # Raised if a verification reached its end, but some of its calls failed.
    Incomplete = Class.new(StandardError)

    autoload :Findings, "leasehold/console/findings"
    autoload :Remedy, "leasehold/console/remedy"

    class << self
      # Returns true if the environment variable is set to a value other than 0, false, no or off.
      def set?(name)
        !ENV[name].to_s.match?(/\A(|0|f|false|n|no|off)\z/i)
      end

      # Runs the block for a shell command: prints a failure to standard error, and exits with its
      # code.
      #
      # @param options [Hash{Symbol => Object}] for {#initialize}
      # @yieldparam console [Console]
      def run(**options)
        yield new(**options)
      rescue Failed => error
        # `warn` prints nothing with `ruby -W0`.
        $stderr.puts error.message
        exit error.status
      end

      # Returns the number of findings to show of each outcome.
      #
      # @raise [Failed] if `SAMPLES` is not a number
      def samples
        number("SAMPLES", SAMPLES, "a number of findings, for example `100`")
      end

      # Returns the number in an environment variable.
      #
      # @raise [Failed] if it is not a number
      def number(name, default, meaning)
        value = ENV[name].presence or return default
        return value.to_i if value.match?(/\A\d+\z/)

        raise Failed.new("`#{name}` is `#{value}`: set it to #{meaning}", [Remedy::EXIT_USAGE])
      end

      # Returns the largest share of a table's claims that verification may destroy; nil for the setting.
      #
      # @raise [Failed] if `MAX_DESTROY_SHARE` is not a number from 0 to 1
      def max_destroy_share
        value = ENV["MAX_DESTROY_SHARE"].presence or return
        share = Float(value, exception: false)
        return share if share&.between?(0, 1)

        raise Failed.new("`MAX_DESTROY_SHARE` is `#{value}`: set it to a share from 0 to 1, for example `0.25`", [Remedy::EXIT_USAGE])
      end
    end

    # @param dry_run [Boolean] true to change nothing
    # @param resume [Boolean] true to continue a verification where a job stopped; false to start at
    #   the beginning
    # @param allow_empty [Boolean] true to destroy the claims of a table without rows
    # @param max_destroy_share [Numeric, nil] see {Verifier}
    # @param samples [Integer] number of findings shown of each outcome
    def initialize(output: $stdout, dry_run: Console.set?("DRY_RUN"), resume: Console.set?("RESUME"),
                   allow_empty: Console.set?("ALLOW_EMPTY"), max_destroy_share: Console.max_destroy_share, samples: Console.samples)
      @output = output
      @dry_run = dry_run
      @resume = resume
      @permissions = { allow_empty: allow_empty, max_destroy_share: max_destroy_share }
      @samples = samples
    end

    # Settles the leases that their processes left unsettled.
    #
    # @raise [Failed] if some step failed
    def reconcile
      failures = reporting { run_reconciler }.uniq { |failure| [failure.step, failure.error.class, failure.error.message] }
      return if failures.empty?

      remedies = failures.map { |failure| Remedy.of(failure.error) }
      lines = failures.zip(remedies).map { |failure, remedy| "  #{failure.description}: #{remedy}" }
      raise Failed.new("some steps failed, the next run tries them again:\n#{lines.join("\n")}", remedies.map(&:status))
    end

    # Verifies the models one after the other. With several models, a failure does not stop the
    # others.
    #
    # @raise [Failed] if a model was not verified; the message names it
    def verify(names)
      return reporting("not verified: ") { verify_model(names.first) } if names.one?

      failed = names.index_with { |name| failure_code(name) }.compact
      return if failed.empty?

      models = failed.keys.map { |name| "`#{name}`" }.join(", ")
      raise Failed.new("not verified: #{models}; the reasons are above", failed.values)
    end

    # Checks that the application can claim, and prints each result.
    #
    # @raise [Failed] if a check failed
    def doctor
      results = Doctor.new.run
      results.each { |result| print_result(result) }
      failed = results.select(&:error)
      return if failed.empty?

      raise Failed.new("#{failed.size} of #{results.size} checks failed", failed.map { |result| status_of(result.error) })
    end

    # Gives up all claims of an attribute whose flag is off. A dry run only counts them.
    #
    # @raise [Failed] if some step failed
    def release(model_name, attribute_name)
      reporting("not released: ") do
        release = Release.new(Models.fetch(model_name), attribute_name)
        next @output.puts("claims to give up: #{release.count}; set `DRY_RUN=0` to give them up") if @dry_run

        released = release.run or raise AlreadyRunning, "a run verifies `#{model_name}`, or another class of its table"
        @output.puts "claims given up: #{released}"
      end
    end

    # Performs jobs of ActiveJob until a signal comes: those of the queues in `QUEUES`, in `CONCURRENCY` threads each.
    # After a signal they may go on for `SHUTDOWN_TIMEOUT` seconds. With `RELAY=1`, also relays the outboxes.
    #
    # @raise [Failed] if no job can be taken
    def work
      queues = ENV["QUEUES"].presence&.split(",")&.map(&:strip) || ["default"]
      concurrency = Console.number("CONCURRENCY", 5, "the number of threads, for example `5`")
      timeout = Console.number("SHUTDOWN_TIMEOUT", 25, "a number of seconds, for example `25`")
      @output.puts "performs jobs of #{queues.join(", ")}, #{concurrency} at a time of each"
      reporting { relaying { JobWorker.run(queues: queues, concurrency: concurrency, shutdown_timeout: timeout) } }
    end

    # Relays the outboxes of the application's databases until a signal comes.
    #
    # @raise [Failed] if no later try can succeed
    def relay
      @output.puts "relays the outbox of #{Relay.databases.map(&:name).join(", ")}"
      reporting { Relay.run }
    end

    private

    # Runs the block, and relays beside it if `RELAY` is set.
    def relaying
      return yield unless Console.set?("RELAY")

      @output.puts "relays the outbox of #{Relay.databases.map(&:name).join(", ")}"
      Relay.beside { yield }
    end

    # Runs the reconciler and prints its summary.
    #
    # @return [Array<Reconciler::Failure>]
    def run_reconciler
      reconciler = Reconciler.new(dry_run: @dry_run) { |step| print_planned_step(step) if @dry_run }
      $stderr.puts UNGUARDED_WARNING unless reconciler.guarded?
      print_counts(reconciler.run)
      reconciler.failures
    end

    # @param result [Doctor::Result]
    def print_result(result)
      unless result.error
        @output.puts "#{result.warning ? 'warn' : 'ok  '}   #{result.subject}: #{[result.text, result.warning].compact.join("\n       ")}"
        return
      end

      @output.puts "fault  #{result.subject}: #{fault_text(result.error).gsub("\n", "\n       ")}"
    end

    # @return [String] the error with its remedy; for an unexpected error also its class, because its message
    #   may say little
    def fault_text(error)
      return error.message if error.is_a?(Doctor::Fault)

      (Remedy.of(error) || "#{error.class}: #{error.message}").to_s
    end

    # @return [Integer] the exit code
    def status_of(error)
      Remedy.of(error)&.status || Remedy::EXIT_OTHER
    end

    # Converts an expected error to {Failed}. An unexpected one passes with its backtrace.
    def reporting(prefix = "")
      yield
    rescue StandardError => error
      remedy = Remedy.of(error) or raise
      clear_line
      raise Failed.new("#{prefix}#{remedy}", [remedy.status])
    end

    # Verifies one of several models, and prints its error.
    #
    # @return [Integer, nil] the exit code; nil on success
    def failure_code(name)
      verify_model(name)
      nil
    rescue StandardError => error
      remedy = Remedy.of(error)
      clear_line
      @output.puts "  #{remedy || "#{error.class}: #{error.message}"}"
      remedy ? remedy.status : Remedy::EXIT_OTHER
    end

    def verify_model(name)
      @output.puts "#{name}#{' (dry run)' if @dry_run}"
      model = Models.fetch(name)
      options = { dry_run: @dry_run, resume: @resume, **@permissions }
      report = printing_findings { Verifier.new(model, **options) { |counts| print_progress(counts) }.run }
      clear_line
      raise AlreadyRunning, "another run verifies `#{name}`, or gives up claims of its table" unless report

      print_report(report)
      raise Incomplete, "calls failed for #{report[:failed]} corrections of `#{name}`" if report[:failed].positive?
    end

    def print_report(report)
      return @output.puts "  nothing is verified: the feature flags of all its attributes are off" if report[:disabled]

      print_counts(report)
      return unless report[:over_destroy_limit]

      @output.puts "  a run that corrects would stop: it would destroy #{report[:to_destroy]} of #{report[:records]} claims, " \
                   "more than the share that `verification_max_destroy_share` or `MAX_DESTROY_SHARE` allows"
    end

    # Erases the progress line on a terminal.
    def clear_line
      @output.print "\r\e[K" if @output.tty?
    end

    def print_progress(report)
      return unless @output.tty?

      counts = report.select { |_, count| count.is_a?(Integer) && count.positive? }
      @output.print "\r\e[K  #{counts.map { |name, count| "#{name} #{count}" }.join(', ')}"
    end

    # Prints the first findings of each outcome while the block runs, and the number of omitted ones
    # after it.
    def printing_findings(&block)
      findings = Findings.new(@samples) do |line|
        clear_line
        @output.puts "  #{line}"
      end
      ActiveSupport::Notifications.subscribed(->(*, payload) { findings.add(payload) }, "finding.leasehold", &block)
    ensure
      findings.print_omitted
    end

    def print_planned_step(step)
      case step
      when Reconciliation::Settle then @output.puts "  would settle #{step.lease}: #{step.outcome}"
      when Reconciliation::DeleteRow then @output.puts "  would delete the row of #{step.lease}: #{step.fate}"
      end
    end

    def print_counts(counts)
      counts.each { |name, count| @output.puts "  #{name.to_s.tr('_', ' ').ljust(24)} #{count}" }
    end
  end
end
