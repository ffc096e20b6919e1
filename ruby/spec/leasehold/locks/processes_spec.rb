# frozen_string_literal: true

require "tempfile"

# Runs scripts in new processes, which are stopped, forked and ended.
RSpec.describe Leasehold::Locks, "of several processes" do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:long) { Support::LockSessions::LONG }
  let(:short) { Support::LockSessions::SHORT }
  let(:locks) { locks_of(@server.address) }

  # Takes the lock that a stopped process held, and returns the time of the grant.
  def take_over
    expect(locks.acquire("user.update", "7", wait: 60)).to be_held
    boot_clock
  end

  it "lets one process at a time do the work" do
    file = Tempfile.new("counter").tap { |counter| counter.write("0") && counter.close }
    processes = Array.new(2) do
      script(@server.address, long, <<~RUBY)
        30.times do
          Leasehold.lock("user.update", "7", wait: 60) { File.write("#{file.path}", File.read("#{file.path}").to_i + 1) }
        end
      RUBY
    end
    expect(processes.map(&:finish)).to eq([true, true])
    expect(File.read(file.path)).to eq("60")
  end

  it "has lost its lock when it is continued after a stop, before another process gets it (K11)" do
    process = script(@server.address, short, <<~'RUBY')
      held = Leasehold.locks.acquire("user.update", "7")
      puts deadline_of(held)
      # Stops itself, so that no renewal comes between the line before and the stop.
      Process.kill("STOP", Process.pid)
      report(held)
    RUBY
    deadline = Float(process.line)
    expect(take_over).to be > deadline
    process.signal("CONT")
    expect(process.line).to eq("false 0.0 Leasehold::Error::SessionLost Leasehold::Error::SessionLost")
  end

  it "has lost its lock after a call of C code that kept Ruby's lock too long (K11)" do
    process = script(@server.address, short, <<~'RUBY')
      require "fiddle"
      types = [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T]
      read = Fiddle::Function.new(Fiddle::Handle::DEFAULT["read"], types, Fiddle::TYPE_SSIZE_T, need_gvl: true)
      held = Leasehold.locks.acquire("user.update", "7")
      told = Queue.new
      held.on_lost { told << "lost" }
      puts deadline_of(held)
      read.call(0, Fiddle::Pointer.malloc(1, Fiddle::RUBY_FREE), 1)
      puts "#{held.held?} #{held.remaining} #{attempt { held.check! }}"
      # The release forgets the block.
      puts told.pop
      puts attempt { held.release }
    RUBY
    lost = "Leasehold::Error::SessionLost"
    deadline = Float(process.line)
    expect(take_over).to be > deadline
    process.write("x")
    expect(Array.new(3) { process.line }).to eq(["false 0.0 #{lost}", "lost", lost])
  end

  it "renews beside busy threads (K11)" do
    process = script(@server.address, { session_duration_seconds: 9, session_grace_seconds: 60 }, <<~'RUBY')
      held = Leasehold.locks.acquire("user.update", "7")
      busy = Array.new(4) { Thread.new { loop { nil } } }
      deadlines = [deadline_of(held)]
      # A renewal moves the deadline by seconds.
      while held.held? && deadlines.size < 3
        deadline = deadline_of(held)
        deadlines << deadline if deadline > deadlines.last + 1
      end
      busy.each(&:kill)
      report(held)
    RUBY
    expect(process.line).to match(/\Atrue \d+\.\d+ holds true\z/)
  end

  it "leaves its locks to itself when it is forked" do
    process = script(@server.address, long, <<~'RUBY')
      Leasehold.lock("user.update", "7") do |held|
        pid = fork do
          report(held)
          Leasehold.locks.close
        end
        Process.wait(pid)
        # This child leaves the block, and runs the hooks of its end.
        Process.wait(fork || exit)
        puts held.fence
        $stdin.gets
        report(held)
      end
    RUBY
    expect(process.line).to eq("false 0.0 Leasehold::Error::Forked false")
    fence = Integer(process.line)
    expect(locks.get("user.update", "7")).to have_attributes(state: :held, fence: fence)
    process.write("\n")
    expect(process.line).to start_with("true ").and end_with(" holds true")
  end

  it "has a session of its own in each child, as Puma and Sidekiq fork them" do
    process = script(@server.address, long, <<~'RUBY')
      Leasehold.locks
      2.times { |number| Process.wait(fork { puts Leasehold.lock("user.update", number) { |held| held.fence } }) }
      puts Leasehold.lock("user.update", "7") { |held| held.fence }
    RUBY
    expect(Array.new(3) { process.line }).to eq(%w[1 2 3])
    expect(process.finish).to be(true)
  end

  it "passes its locks on when it ends" do
    process = script(@server.address, long, <<~'RUBY')
      Leasehold.locks.acquire("user.update", "7")
      Thread.new { Leasehold.locks.acquire("user.update", "8") }.join
    RUBY
    expect(process.finish).to be(true)
    expect(%w[7 8].map { |key| locks.get("user.update", key).last.reason }).to eq(%i[closed closed])
  end

  it "leaves the locks to their silence if a thread may still work under them when it ends" do
    process = script(@server.address, short, <<~'RUBY')
      held = Queue.new
      Thread.new { Leasehold.lock("user.update", "7") { held << 1; loop { nil } } }
      held.pop
    RUBY
    # Ruby kills the thread when gRPC has ended: a release from its block would crash the process.
    expect(process.finish).to be(true)
    take_over
    expect(locks.get("user.update", "7").last.reason).to eq(:expired)
  end
end
