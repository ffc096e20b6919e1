# frozen_string_literal: true

# Runs scripts in new processes, which end while a thread still works.
RSpec.describe Leasehold::Client, "at the end of a process" do
  include Support::Scripts

  around { |example| Support::ClaimsServer.run { |server| @server = server and example.run } }

  # Runs a script whose thread makes a call, and stays in its block until the process ends.
  def run(script)
    prelude = <<~'RUBY'
      require "leasehold"
      $stdout.sync = true
      Leasehold.configure do |c|
        c.address = ARGV.fetch(0)
        c.cell_id = 1
        c.tls = { insecure: true }
        c.request_deadline_seconds = 30
      end
      def working(&ended)
        ready = Queue.new
        Thread.new do
          Leasehold.client.list_leases
          ready << true
          sleep
        ensure
          ended.call
        end
        ready.pop
      end
    RUBY
    run_script(prelude + script, @server.address)
  end

  it "refuses the calls of a thread that Ruby kills, because gRPC has ended" do
    output = run(<<~'RUBY')
      working do
        Leasehold.client.list_leases
      rescue Leasehold::Error => error
        puts error.class, error.code
      end
    RUBY
    expect(output).to eq(%w[Leasehold::Error::Unavailable PROCESS_ENDING])
  end

  it "still makes the calls of the application's own hooks" do
    output = run(<<~'RUBY')
      at_exit { puts Leasehold.client.list_leases.leases.size }
      working { nil }
    RUBY
    expect(output).to eq(["0"])
  end
end
