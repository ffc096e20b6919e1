# frozen_string_literal: true

require "English"
require "rbconfig"
require "timeout"

module Support
  # A process that runs a script as a cell. The script can stop at a call, where the spec kills the
  # process.
  class CellProcess
    ENVIRONMENT = File.expand_path("../rails_app/config/environment.rb", __dir__)
    # Functions for the script. `stop_before(:commit_update)` and `stop_after(:begin_update)` make
    # the script print "stopped" before or after the call, and then sleep.
    STOPS = <<~'RUBY'
      class Stop
        def initialize(edge); @edge = edge; end
        def start(*) = (stop if @edge == :before)
        def finish(*) = (stop if @edge == :after)
        def stop
          $stdout.puts("stopped")
          $stdout.flush
          sleep
        end
      end
      def stop_before(call) = ActiveSupport::Notifications.subscribe("#{call}.leasehold", Stop.new(:before))
      def stop_after(call) = ActiveSupport::Notifications.subscribe("#{call}.leasehold", Stop.new(:after))
    RUBY

    # The time within which a script ends. The longest takes a minute on a busy machine.
    DEADLINE_SECONDS = 600
    private_constant :DEADLINE_SECONDS

    # Runs the script until it stops, and kills the process.
    def self.killed(cell, server_address, script)
      process = new(cell, server_address, script)
      process.wait_for("stopped")
    ensure
      process&.kill
    end

    # Runs the script to its end.
    #
    # @return [String] its output
    def self.run(cell, server_address, script, variables = {})
      new(cell, server_address, script, variables).finish
    end

    attr_reader :pid

    # @param variables [Hash{String => String}] added to the process's environment
    def initialize(cell, server_address, script, variables = {})
      @output, writer = IO.pipe
      @pid = spawn(
        cell.environment(server_address).merge(variables), RbConfig.ruby, "-r", ENVIRONMENT, "-e", STOPS + script,
        out: writer, in: File::NULL
      )
      writer.close
    end

    def wait_for(word)
      lines = []
      until lines.last == word
        line = @output.gets or raise "the process ended instead: #{lines}"
        lines << line.chomp
      end
    end

    def kill
      Process.kill("KILL", @pid)
      Process.wait(@pid)
      @output.close
    end

    def finish
      text = Timeout.timeout(DEADLINE_SECONDS) { @output.read }
      Process.wait(@pid)
      raise "the process failed: #{text}" unless $CHILD_STATUS.success?

      text
    rescue Timeout::Error
      Process.kill("KILL", @pid)
      raise
    ensure
      @output.close
    end
  end
end
