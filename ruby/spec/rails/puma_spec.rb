# frozen_string_literal: true

require "rails_helper"
require "net/http"
require "rbconfig"

# Runs the application in Puma: a master process that preloads it, and forked workers.
RSpec.describe "an application preloaded by Puma", :rails do
  CONFIGURATION = <<~RUBY
    require #{Support::CellProcess::ENVIRONMENT.inspect}

    workers 2
    threads 2, 2
    # If the master made a call, gRPC keeps a forked worker from ending until this timeout. Its default is 30
    # seconds.
    worker_shutdown_timeout 2
    bind "tcp://127.0.0.1:0"
    preload_app!
    app do |request|
      User.create!(username: request["PATH_INFO"].delete_prefix("/"))
      [200, {}, [Process.pid.to_s]]
    rescue StandardError => error
      [500, {}, [error.class.name]]
    end
  RUBY

  # Runs Puma and calls the block with its port, its process id and its output.
  def puma(boot = "", configuration: CONFIGURATION)
    reader, writer = IO.pipe
    environment = Support::Cell[1].environment(server.address)
    pid = spawn(environment, RbConfig.ruby, "-S", "puma", "-C", write_configuration(configuration + boot), %i[out err] => writer)
    writer.close
    yield port(reader), pid, reader
  ensure
    Process.kill("TERM", pid)
    Process.wait(pid)
    reader.close
    FileUtils.rm_rf(@directory)
  end

  def write_configuration(code)
    @directory = Dir.mktmpdir("leasehold-puma")
    File.join(@directory, "puma.rb").tap { |path| File.write(path, code) }
  end

  # @return [String] the port, after both workers have booted
  def port(output)
    Timeout.timeout(300) do
      lines = output.each_line.take_while { |line| !line.include?("Worker 1 (") || !line.include?("booted") }
      lines.join[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1] or raise "Puma does not listen: #{lines.join}"
    end
  end

  def get(port, path)
    Net::HTTP.get_response("127.0.0.1", "/#{path}", port)
  end

  it "claims in every worker over a connection of its own" do
    pids = puma do |port|
      threads = Array.new(4) { |thread| Thread.new { Array.new(10) { |number| get(port, "user-#{thread}-#{number}") } } }
      answers = threads.flat_map(&:value)
      expect(answers.map(&:code)).to all(eq("200")), answers.map(&:body).tally.inspect
      answers.map(&:body).uniq
    end

    expect(pids.size).to eq(2)
    expect(claimed(User, :username).size).to eq(40)
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "raises Forked in workers if the application made a call while it was loaded" do
    answers = puma(%(User.create!(username: "preloaded")\n)) { |port| Array.new(4) { |number| get(port, "user-#{number}") } }

    expect(answers.map { |answer| [answer.code, answer.body] }).to all(eq(["500", "Leasehold::Error::Forked"]))
    expect(User.pluck(:username)).to eq(["preloaded"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "claims in workers that `fork_worker` forks from the first one" do
    answered = puma("fork_worker 0\n") { |port| answers(port) }

    expect(answered.map(&:code)).to all(eq("200"))
    expect(answered.map(&:body).uniq.size).to eq(2)
  end

  # With `preload_app!` Puma does not refork: it replaces worker 0 (puma 5.6.5, lib/puma/cluster.rb:213). The
  # second refork ends the worker of the first one.
  it "raises Forked in workers that `fork_worker` forks later, and these end cleanly with the guide's hook" do
    reforking = "fork_worker 0\non_refork { Leasehold.reset_client }\n"
    printed = puma(reforking, configuration: CONFIGURATION.sub("preload_app!\n", "")) do |port, pid, output|
      expect(answers(port).map(&:code)).to all(eq("200"))
      first, second = [1, 2].map { |phase| refork(pid, output, phase).tap { @answered = answers(port) } }

      expect(@answered.map { |answer| [answer.code, answer.body[/Leasehold.*/]] }.uniq)
        .to contain_exactly(["200", nil], ["500", "Leasehold::Error::Forked"])
      first + second
    end

    expect(printed.grep(/Worker 1 .*booted/).size).to eq(2)
    expect(printed.grep(/\[BUG\]/)).to be_empty
  end

  # @return [Array<String>] the lines that Puma prints until worker 1 has booted again
  def refork(pid, output, phase)
    Process.kill("URG", pid)
    Timeout.timeout(300) do
      lines = []
      lines << output.gets until lines.last&.match?(/Worker 1 .* phase: #{phase}$/)
      lines
    end
  end

  # @return [Array<Net::HTTPResponse>] answers of both workers
  def answers(port)
    names = Array.new(4) { Array.new(10) { SecureRandom.hex(8) } }
    names.map { |some| Thread.new { some.map { |name| get(port, name) } } }.flat_map(&:value)
  end
end
