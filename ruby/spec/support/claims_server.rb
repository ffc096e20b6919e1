# frozen_string_literal: true

require "json"
require "open3"
require "timeout"
require "tmpdir"

module Support
  # A real server process with a data directory of its own. It can be stopped, killed and restarted
  # at the same address.
  class ClaimsServer
    ROOT = File.expand_path("../../..", __dir__)
    # Longer than other waits: a start reads and writes files while other suites keep the machine busy.
    START_DEADLINE_SECONDS = 60

    # @return [String] the path of the server: LEASEHOLD_BINARY, or the binary that the workspace's
    #   tests build
    def self.binary
      @binary ||= ENV["LEASEHOLD_BINARY"] || build
    end

    def self.build
      command = %w[cargo test --workspace --no-run --message-format=json]
      output, status = Open3.capture2(*command, chdir: ROOT)
      raise "the server does not build: fix the errors that cargo printed" unless status.success?

      artefacts = output.lines.map { |line| JSON.parse(line) }
      artefacts.filter_map { |artefact| artefact["executable"] if artefact.dig("target", "kind") == ["bin"] }
               .find { |path| File.basename(path) == "leasehold" }
    end
    private_class_method :build

    # Runs the block with a server, and removes the server afterwards.
    def self.run(**options)
      server = new(**options).start
      yield server
    ensure
      server&.clear
    end

    attr_reader :address, :pid, :store_id

    # @param tls [Hash] paths `certificate`, `key` and `client_ca`
    # @param settings [String] further lines of the configuration
    def initialize(tls: nil, settings: "")
      @directory = Dir.mktmpdir("leasehold-server")
      @address = "127.0.0.1:0"
      @arguments = tls || !settings.empty? ? ["--config", write_configuration(tls, settings)] : []
    end

    def start
      @output, writer = IO.pipe
      @pid = spawn(
        self.class.binary, "serve", "--create", "--listen", @address, "--data", File.join(@directory, "data"), *@arguments,
        out: writer, err: File.join(@directory, "log")
      )
      writer.close
      @address = listening
      self
    end

    # Stops the server after its running calls.
    def stop
      finish("TERM")
    end

    def kill
      finish("KILL")
    end

    # Kills the server and deletes its data.
    def clear
      kill
      FileUtils.remove_entry(@directory)
    end

    private

    def finish(signal)
      return unless @pid

      Process.kill(signal, @pid)
      Process.wait(@pid)
      @pid = nil
      @output.close
    end

    def listening
      Timeout.timeout(START_DEADLINE_SECONDS) do
        line = @output.each_line.find { |text| text.include?("listening on") }
        raise "the server did not start: #{File.read(File.join(@directory, "log"))}" unless line

        @store_id = @output.each_line.find { |text| text.include?("  store ") }[/store +(\S+)/, 1]
        line[/listening on (\S+)/, 1]
      end
    end

    def write_configuration(tls, settings)
      cells = [1, 2].map { |id| <<~CELL }
        [[cells]]
        id = #{id}
        name = "cell-#{id}"
        address = "https://cell-#{id}.example.com"
        session_prefix = "cell-#{id}-"
        sequence_range = { minval = #{id}000, maxval = #{id}999 }
      CELL
      files = tls&.map { |name, path| "#{name} = #{path.to_json}\n" }&.unshift("[tls]\n")&.join
      File.join(@directory, "leasehold.toml").tap { |path| File.write(path, "#{files}\n#{cells.join}\n#{settings}") }
    end
  end
end
