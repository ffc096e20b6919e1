# frozen_string_literal: true

# Runs workers in new processes, which are killed and stopped.
RSpec.describe Leasehold::Queues, "of several processes" do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:long) { Support::LockSessions::LONG }
  let(:queues) { queues_of(@server.address) }
  let(:sheets) { queues.queue("sheets") }

  # A worker that prints each batch, and works until a line of input comes.
  def worker(terms, options = "")
    script(@server.address, terms, <<~RUBY)
      Leasehold.work("sheets"#{options}) do |batch|
        puts batch.requests.map { |request| [batch.key, request.body, request.attempt].join(" ") }.join(",")
        $stdin.gets
      end
      puts "stopped"
    RUBY
  end

  it "hands what a killed worker had to another one, as the next attempt (Q03)" do
    request = sheets.submit("7", "work")
    killed = worker(Support::LockSessions::SHORT)
    expect(killed.line).to eq("7 work 1")
    killed.signal("KILL")
    other = worker(long)
    expect(other.line).to eq("7 work 2")
    other.write("\n")
    Support::Waiting.wait_for("the end of the work") { queues.request(request.id).state == :complete }
    expect(queues.request(request.id).attempts).to eq(2)
  end

  it "gives back what it has not finished when it is told to stop, and counts no attempt (Q11)" do
    request = sheets.submit("7", "work")
    stopped = worker(long, ", stop_within: 0")
    expect(stopped.line).to eq("7 work 1")
    stopped.signal("TERM")
    expect(stopped.line).to eq("stopped")
    expect(queues.request(request.id)).to have_attributes(state: :new, attempts: 0)
    expect(stopped.finish).to be(true)
    expect(worker(long).line).to eq("7 work 1")
  end

  it "ends its running work when it is told to stop, and takes nothing more (Q11)" do
    %w[7 8].each { |key| sheets.submit(key, "work") }
    stopped = worker(long, ', stop_within: 60, on_stop: -> { puts "stopping" }')
    expect(stopped.line).to eq("7 work 1")
    stopped.signal("TERM")
    expect(stopped.line).to eq("stopping")
    stopped.write("\n")
    expect(stopped.line).to eq("stopped")
    expect(sheets.requests(:settled).requests.map(&:key)).to eq(["7"])
    expect(sheets.requests(:waiting, key: "8").requests.map(&:attempts)).to eq([0])
  end
end
