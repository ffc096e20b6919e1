# frozen_string_literal: true

RSpec.describe Leasehold::Locks, "that are reaped" do
  include Support::LockSessions

  around do |example|
    settings = "[[locks.reaped]]\nnamespaces = [\"reaped\"]\nattempts = 2\n"
    Support::ClaimsServer.run(settings: settings) { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:locks) { locks_of(@server.address) }
  let(:other) { locks_of(@server.address) }

  # Lets a process die while it holds a lock. Returns the fence of its grant.
  def die_holding(key = "7")
    holder = locks_of(@server.address)
    holder.acquire("reaped.runner", key).fence.tap { holder.close }
  end

  def status(key = "7")
    other.get("reaped.runner", key)
  end

  def clean_badly(cleaner = locks)
    attempt = nil
    expect { cleaner.reap("reaped", wait: 60) { |orphan| (attempt = orphan.attempt) && raise(IndexError) } }.to raise_error(IndexError)
    attempt
  end

  # Waits for a lock in a thread of its own, and cleans up.
  def reap_later(cleaner)
    Thread.new { cleaner.reap("reaped", wait: 60) { |orphan| [orphan.key, orphan.attempt] } }
          .tap { |thread| Support::Waiting.wait_for("the thread to wait") { thread.status == "sleep" } }
  end

  it "passes a dead holder's lock on after the cleanup only (K17)" do
    fence = die_holding
    expect(status).to have_attributes(state: :orphaned, fence: nil)
    expect(status.obituary).to have_attributes(fence: fence, reason: :closed, attempts: 0, most_attempts: 2)
    expect(other.list("reaped").locks.map(&:key)).to eq(["7"])
    waiting = Thread.new { other.acquire("reaped.runner", "7", wait: 60) }
    Support::Waiting.wait_for("the ask to wait") { status.waiting == 1 }

    result = locks.reap("reaped", wait: 60) do |orphan|
      expect(orphan).to have_attributes(namespace: "reaped.runner", key: "7", former_fence: fence, attempt: 1, most_attempts: 2)
      expect(orphan).to have_attributes(held?: true, check!: orphan, remaining: a_value > 0, fence: a_value > fence)
      expect(status).to have_attributes(state: :held, fence: orphan.fence, waiting: 1)
      orphan.fence
    end
    expect(waiting.value.fence).to be > result
    # A release needs no cleanup, even after work that has failed.
    waiting.value.release(failed: true)
    expect(status).to have_attributes(state: :free, obituary: nil)
  end

  it "offers a cleanup that failed again, and sets the lock aside after the last attempt (K17)" do
    fence = die_holding
    expect([clean_badly, status.state]).to eq([1, :orphaned])
    expect([clean_badly, status.state]).to eq([2, :set_aside])

    expect { other.resolve_orphan("reaped.runner", "7", fence: fence + 100, resolution: :retry) }.to raise_error(Leasehold::Error::FencePassed)
    expect { other.resolve_orphan("reaped.runner", "7", fence: fence, resolution: :wrong) }.to raise_error(Leasehold::Error::Invalid, /:retry/)
    other.resolve_orphan("reaped.runner", "7", fence: fence, resolution: :retry)
    expect(clean_badly).to eq(1)
    other.resolve_orphan("reaped.runner", "7", fence: fence, resolution: :cleaned)
    expect(status.state).to eq(:free)
  end

  it "offers the cleanup of a cleaner that was killed again (K17)" do
    fence = die_holding
    cleaner = script(@server.address, Support::LockSessions::SHORT, <<~'RUBY')
      Leasehold.reap("reaped") do |orphan|
        puts "#{orphan.former_fence} #{orphan.attempt}"
        $stdin.read
      end
    RUBY
    expect(cleaner.line).to eq("#{fence} 1")
    cleaner.signal("KILL")
    expect(locks.reap("reaped", wait: 60) { |orphan| [orphan.former_fence, orphan.attempt] }).to eq([fence, 2])
    expect(status.state).to eq(:free)
  end

  it "takes nothing once the wait is over or interrupted (K17)" do
    expect { |block| expect(locks.reap("reaped", wait: 0, &block)).to be_nil }.not_to yield_control
    waiting = reap_later(locks)
    waiting.report_on_exception = false
    waiting.raise(Timeout::Error)
    expect { waiting.join }.to raise_error(Timeout::Error)
    die_holding
    expect(other.reap("reaped", wait: 60, &:attempt)).to eq(1)
  end

  it "releases as failed if its thread is killed (K17)" do
    die_holding
    begun = Queue.new
    thread = Thread.new { locks.reap("reaped") { begun.push(1) && Queue.new.pop } }
    next_of(begun)
    thread.kill.join
    expect(status).to have_attributes(state: :orphaned)
    expect(other.reap("reaped", wait: 60, &:attempt)).to eq(2)
  end

  %i[stop kill].each do |ending|
    it "waits on after the #{ending} of the server (K17, K22)" do
      # The session is open before the wait begins.
      die_holding("before")
      expect(locks.reap("reaped", wait: 60, &:key)).to eq("before")
      waiting = reap_later(locks)
      @server.public_send(ending)
      @server.start
      die_holding("after")
      expect(waiting.value).to eq(["after", 1])
    end
  end

  it "gets the same lock if the answer was lost (K05, K17)" do
    Support::TcpProxy.run(@server.address) do |proxy|
      cleaner = locks_of(proxy.address)
      cleaner.acquire("other", "session").release
      fence = die_holding
      cut = Queue.new
      proxy.cut_next_answer { cut << true }
      expect(cleaner.reap("reaped", wait: 60) { |orphan| [orphan.former_fence, orphan.attempt] }).to eq([fence, 1])
      expect(cut.size).to eq(1)
    end
  end

  it "waits on under another session if the server has ended its own (K17)" do
    held = locks.acquire("other", "session")
    waiting = reap_later(locks)
    session = held.instance_variable_get(:@session)
    session.calls.run(:close_session, described_class::Messages.close(session.id))
    die_holding
    expect(waiting.value).to eq(["7", 1])
  end

  it "tells a cleaner that an operator takes its lock (K20)" do
    fence = die_holding
    told = Queue.new
    reap = lambda do
      locks_of(@server.address, { session_duration_seconds: 3, session_grace_seconds: 60 }).reap("reaped", wait: 60) do |orphan|
        orphan.on_lost { told << :lost }
        other.force("reaped.runner", "7", fence: orphan.fence)
        next_of(told)
        orphan.check!
      end
    end
    expect(&reap).to raise_error(Leasehold::Error::FencePassed)
    expect(status.obituary).to have_attributes(fence: fence, attempts: 1)
  end

  {
    "an empty namespace" => ["", {}], "an empty part" => ["secret..b", {}], "a control character" => ["secret\n", {}],
    "no namespace" => [nil, {}], "bytes that are no text" => ["secret\xFF", {}], "a negative wait" => ["reaped", { wait: -1 }],
    "a wait that is no number" => ["reaped", { wait: "secret" }]
  }.each do |name, (namespace, options)|
    it "refuses #{name}, and quotes nothing (K16, K24)" do
      expect { locks.reap(namespace, **options) { nil } }.to raise_error(Leasehold::Error::Invalid) { |error|
        expect(error.code).to eq("INVALID_UPDATE")
        expect([error.message, error.cause&.message].join).not_to include("secret")
      }
    end
  end

  it "cleans up as the guide for Rails shows" do
    guide = File.read(File.expand_path("../../../../docs/src/guides/rails.md", __dir__))
    code = guide.scan(/^```ruby\n(.*?)^```/m).flatten.find { |block| block.include?("reap_each") }
    freed = []
    runner = Struct.new(:key) { define_method(:update!) { |**changes| freed << [key, changes] } }
    stub_const("Runner", Class.new { define_singleton_method(:find) { |key| runner.new(key) } })
    die_holding
    allow(Leasehold).to receive(:locks).and_return(locks)
    eval(code.sub('"runner"', '"reaped"').sub("wait: 60", "wait: 10")) # rubocop:disable Security/Eval

    expect([freed, status.state]).to eq([[["7", { reserved: false }]], :free])
  end

  describe "#reap_each" do
    it "cleans up after each dead holder, reports what failed, and ends when none is left (K17, K24)" do
      %w[good secret].each { |key| die_holding(key) }
      seen, errors, log = [], [], StringIO.new
      cleaner = locks_of(@server.address, logger: Logger.new(log))
      cleaner.reap_each("reaped", wait: 15, on_error: ->(error, orphan) { errors << [error.class, orphan.key] }) do |orphan|
        seen << [orphan.key, orphan.attempt]
        raise IndexError, "secret" if orphan.key == "secret"
      end
      expect(seen).to contain_exactly(["good", 1], ["secret", 1], ["secret", 2])
      expect(errors).to eq([[IndexError, "secret"]] * 2)
      expect(log.string).to match(/cleanup 1 of at most 2 raised IndexError.*cleanup 2 of at most 2 raised IndexError/m)
      expect(log.string).not_to include("secret")
      expect(%w[good secret].map { |key| status(key).state }).to eq(%i[free set_aside])
    end

    it "goes on after an error of the wait, and ends with `break`" do
      cleaner = locks_of(@server.address, Support::LockSessions::STEADY)
      cleaner.acquire("other", "session").release
      errors = Queue.new
      report = ->(error, orphan) { errors << [error, orphan] }
      thread = Thread.new { cleaner.reap_each("reaped", on_error: report) { |orphan| break orphan.key } }
      Support::Waiting.wait_for("the thread to wait") { thread.status == "sleep" }
      @server.kill
      error, orphan = next_of(errors)
      expect([error, orphan]).to match([a_kind_of(Leasehold::Error), nil])
      @server.start
      die_holding
      expect(thread.value).to eq("7")
      expect(status.state).to eq(:free)
    end

    it "raises an error that no later wait can mend" do
      expect { locks.reap_each("a..b") { nil } }.to raise_error(Leasehold::Error::Invalid)
    end
  end

  it "is stopped by a signal as a process of its own, and leaves the lock orphaned (K17)" do
    die_holding
    cleaner = script(@server.address, Support::LockSessions::LONG, <<~'RUBY')
      Leasehold.reap_each("reaped") do |orphan|
        puts orphan.attempt
        $stdin.read
      end
    RUBY
    expect(cleaner.line).to eq("1")
    cleaner.signal("TERM")
    expect(other.reap("reaped", wait: 60, &:attempt)).to eq(2)
  end
end
