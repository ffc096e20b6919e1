# frozen_string_literal: true

require "json"
require "open3"
require "timeout"
require "tmpdir"

module Support
  # The real server, as a process of its own over a directory of its own. It can be stopped, killed and started again at
  # the same address.
  class ClaimsServer
    ROOT = File.expand_path("../../..", __dir__)

    # The server's binary: LEASEHOLD_BINARY, or what the workspace's tests build.
    def self.binary
      @binary ||= ENV["LEASEHOLD_BINARY"] || build
    end

    def self.build
      command = %w[cargo test --workspace --no-run --message-format=json]
      output, status = Open3.capture2(*command, chdir: ROOT)
      raise "the server does not build" unless status.success?

      artefacts = output.lines.map { |line| JSON.parse(line) }
      artefacts.filter_map { |one| one["executable"] if one.dig("target", "kind") == ["bin"] }
               .find { |path| File.basename(path) == "leasehold" }
    end
    private_class_method :build

    # Runs the block with a server that is gone afterwards.
    def self.run(**options)
      server = new(**options).start
      yield server
    ensure
      server&.clear
    end

    attr_reader :address, :pid

    # @param tls [Hash] paths `certificate`, `key` and `client_ca`
    def initialize(tls: nil)
      @directory = Dir.mktmpdir("leasehold-server")
      @address = "127.0.0.1:0"
      @arguments = tls ? ["--config", write_configuration(tls)] : []
    end

    def start
      @output, writer = IO.pipe
      @pid = spawn(
        self.class.binary, "serve", "--listen", @address, "--data", File.join(@directory, "data"), *@arguments,
        out: writer, err: File.join(@directory, "log")
      )
      writer.close
      @address = listening
      self
    end

    # Lets the server finish what is running.
    def stop
      finish("TERM")
    end

    def kill
      finish("KILL")
    end

    # Ends the server, and all that it kept.
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
      Timeout.timeout(Waiting::DEADLINE_SECONDS) do
        line = @output.each_line.find { |text| text.include?("listening on") }
        raise "the server did not start: #{File.read(File.join(@directory, "log"))}" unless line

        line[/listening on (\S+)/, 1]
      end
    end

    def write_configuration(tls)
      cells = [1, 2].map { |id| <<~CELL }
        [[cells]]
        id = #{id}
        name = "cell-#{id}"
        address = "https://cell-#{id}.example.com"
        session_prefix = "cell-#{id}-"
        sequence_range = { minval = #{id}000, maxval = #{id}999 }
      CELL
      files = tls.map { |name, path| "#{name} = #{path.to_json}\n" }.join
      File.join(@directory, "leasehold.toml").tap { |path| File.write(path, "[tls]\n#{files}\n#{cells.join}") }
    end
  end
end
