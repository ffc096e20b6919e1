# frozen_string_literal: true

require "open3"
require "rbconfig"
require "timeout"

module Support
  # Creates the locks and queues of processes: of this one, with several sessions, and of others.
  module LockSessions
    # Terms that never pass in an example.
    LONG = { session_duration_seconds: 3_600, session_grace_seconds: 60 }.freeze
    # Terms for a session that may be lost at any moment.
    SHORT = { session_duration_seconds: 2, session_grace_seconds: 1 }.freeze
    # Terms that pass in an example, but not during a pause of some seconds, which a busy machine may make at any moment.
    STEADY = { session_duration_seconds: 2, session_grace_seconds: 10 }.freeze
    # The deadline of one try of a call. A server that is killed refuses calls at once, whatever their deadline.
    DEADLINE_SECONDS = 30

    PRELUDE = <<~'RUBY'
      require "leasehold"
      $stdout.sync = true
      # A forked child crashes or hangs when Ruby frees the parent's objects of gRPC. This hook runs last, after those of the
      # gem.
      parent = Process.pid
      at_exit { exit!(0) unless Process.pid == parent }
      Leasehold.configure do |config|
        config.address = ARGV.fetch(0)
        config.tls = { insecure: true }
        config.lock_deadline_seconds = 30
        config.session_duration_seconds, config.session_grace_seconds = ARGV[1, 2].map { |time| Float(time) }
      end
      def attempt
        yield
      rescue Leasehold::Error => error
        error.class.name
      end
      # The time at which the lock is lost, by the clock of all processes of this machine.
      def deadline_of(held) = Process.clock_gettime(Process::CLOCK_BOOTTIME) + held.remaining
      def report(held) = puts("#{held.held?} #{held.remaining} #{attempt { held.check! && "holds" }} #{attempt { held.release }}")
    RUBY

    # A process that runs a script with the gem, and the processes that it forks.
    class Script
      # The time for a line or the end of a script. It is longer than the time for which scripts wait for a lock.
      DEADLINE_SECONDS = 120
      private_constant :DEADLINE_SECONDS

      attr_reader :pid

      def initialize(address, terms, script)
        command = [RbConfig.ruby, "-W0", "-I", File.expand_path("../../lib", __dir__), "-e", PRELUDE + script, address]
        @input, @output, @thread = Open3.popen2(*command, *terms.values.map(&:to_s), pgroup: true)
        @pid = @thread.pid
      end

      # Returns the next line of the script's output.
      def line
        Timeout.timeout(DEADLINE_SECONDS) { @output.gets&.chomp || raise("the script has ended: #{@thread.value}") }
      end

      def write(text)
        @input.write(text)
        @input.flush
      end

      def signal(name)
        Process.kill(name, @pid)
      end

      # Waits for the end of the script.
      #
      # @return [Boolean] true if it succeeded
      def finish
        @input.close
        Timeout.timeout(DEADLINE_SECONDS) do
          @output.read
          @thread.value.success?
        end
      end

      def clear
        Process.kill("KILL", -@pid)
      rescue Errno::ESRCH
        nil
      ensure
        @thread.join
      end
    end

    # Returns locks with a session of their own, as those of another process.
    def locks_of(address, terms = LONG, **settings)
      Leasehold::Locks.new(configuration_of(address, terms, settings)).tap { |locks| (@opened_locks ||= []) << locks }
    end

    # Returns the queues of a process. Each worker of them has a session with these terms.
    def queues_of(address, terms = LONG, **settings)
      Leasehold::Queues.new(configuration_of(address, terms, settings)).tap { |queues| (@opened_locks ||= []) << queues }
    end

    # Starts a worker that is stopped after the example.
    #
    # @return [Leasehold::Worker]
    def start_worker(queues, name = "sheets", **options, &block)
      queues.worker(name, **options, &block).start.tap { |worker| (@workers ||= []) << worker }
    end

    def script(address, terms, text)
      Script.new(address, terms, text).tap { |process| (@scripts ||= []) << process }
    end

    # Ends what an example has opened.
    def clear_locks
      @workers&.each { |worker| worker.stop(within: 0) }
      @opened_locks&.each(&:close)
      @scripts&.each(&:clear)
    end

    # Takes the next object from a queue that another thread fills.
    def next_of(queue)
      Timeout.timeout(Waiting::DEADLINE_SECONDS) { queue.pop }
    end

    # @return [Float] the clock of sessions
    def boot_clock
      Process.clock_gettime(Process::CLOCK_BOOTTIME)
    end

    # @return [Leasehold::Configuration]
    def configuration_of(address, terms, settings)
      defaults = { address: address, tls: { insecure: true }, logger: Logger.new(IO::NULL), lock_deadline_seconds: DEADLINE_SECONDS }
      Leasehold::Configuration.new.tap do |configuration|
        { **defaults, **terms, **settings }.each { |name, value| configuration.public_send("#{name}=", value) }
      end
    end

    # Waits until this many asks wait for the lock.
    def wait_for_waiters(locks, key, count)
      Waiting.wait_for("#{count} asks") { locks.get("user.update", key).waiting == count }
    end
  end
end
