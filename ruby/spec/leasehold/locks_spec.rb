# frozen_string_literal: true

RSpec.describe Leasehold::Locks do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:locks) { locks_of(@server.address) }
  let(:other) { locks_of(@server.address) }

  def status(key = "7")
    other.get("user.update", key)
  end

  it "has one holder at a time, and each grant has a larger fence (K01, K03, K05)" do
    first = locks.try_acquire("user.update", 7)
    expect([other.try_acquire("user.update", "7"), locks.try_acquire("user.update", "7")]).to eq([nil, nil])
    expect(first).to have_attributes(namespace: "user.update", key: "7", held?: true, standing: :safe)
    expect(status).to have_attributes(state: :held, fence: first.fence, waiting: 0, last: nil)

    expect([first.release(value: "done"), first.release]).to eq([true, false])
    expect(status).to have_attributes(state: :free, fence: nil, session_id: nil)
    expect(status.last).to have_attributes(fence: first.fence, reason: :succeeded, value: "done")
    expect(other.acquire("user.update", "7").fence).to be > first.fence
    expect([first.held?, first.remaining]).to eq([false, 0.0])
    expect { first.check! }.to raise_error(Leasehold::Error::LockLost)
  end

  it "releases with the block, as failed if it raises, and returns its result" do
    result = locks.with("user.update", "7") do |held|
      held.value = "seen"
      :result
    end
    expect([result, status.last.reason, status.last.value]).to eq([:result, :succeeded, "seen"])

    expect { locks.with("user.update", "7") { raise IndexError } }.to raise_error(IndexError)
    expect([status.state, status.last.reason]).to eq(%i[free failed])
    locks.with("user.update", "7") { break }
    expect([status.state, status.last.reason]).to eq(%i[free succeeded])

    stop = Queue.new
    thread = Thread.new { locks.with("user.update", "7") { stop.push(1) && Queue.new.pop } }
    next_of(stop)
    thread.kill.join
    expect([status.state, status.last.reason]).to eq(%i[free failed])
  end

  it "runs no block if the lock is not free in time" do
    other.acquire("user.update", "7")
    expect { |block| expect { locks.with("user.update", "7", wait: 0.05, &block) }.to raise_error(Leasehold::Error::LockHeld) }.not_to yield_control
    expect(status.waiting).to eq(0)
    expect { locks.with("user.update", "7") { nil } }.to raise_error(an_instance_of(Leasehold::Error::LockHeld).and(be_temporary))
  end

  it "tells who waits its place, and grants in the order of arrival (K01, K08)" do
    held = other.acquire("user.update", "7")
    places, order = Queue.new, Queue.new
    waiting = Array.new(3) do |number|
      waiter = locks_of(@server.address)
      Thread.new { waiter.with("user.update", "7", wait: 60, on_wait: places.method(:push)) { |lock| order << [number, lock.fence] } }
            .tap { wait_for_waiters(other, "7", number + 1) }
    end
    expect(Array.new(3) { next_of(places) }).to eq([0, 1, 2])

    held.release
    waiting.each(&:join)
    served = Array.new(3) { next_of(order) }
    expect(served.map(&:first)).to eq([0, 1, 2])
    expect(served.map(&:last)).to eq(served.map(&:last).sort)
  end

  it "leaves the queue if the wait is interrupted (K10)" do
    held = other.acquire("user.update", "7")
    waiting = Thread.new { locks.with("user.update", "7", wait: 60) { nil } }
    waiting.report_on_exception = false
    wait_for_waiters(other, "7", 1)
    waiting.raise(Timeout::Error)
    expect { waiting.join }.to raise_error(Timeout::Error)
    # At once: the server itself would drop the ask after ten seconds.
    expect(status.waiting).to eq(0)
    held.release
    expect(status.state).to eq(:free)
  end

  {
    "an empty namespace" => [["", "k"], "INVALID_UPDATE"], "an empty part" => [["a..b", "k"], "INVALID_UPDATE"],
    "an empty key" => [["a", ""], "INVALID_UPDATE"], "a control character" => [["a", "secret\n"], "INVALID_UPDATE"],
    "a long key" => [["a", "secret" * 100], "LIMIT_EXCEEDED"], "a long namespace" => [["secret" * 50, "k"], "LIMIT_EXCEEDED"],
    "a record as the key" => [["a", Object.new], "INVALID_UPDATE"], "no key" => [["a", nil], "INVALID_UPDATE"],
    "bytes that are no text" => [["a", "secret\xFF"], "INVALID_UPDATE"], "a wait of years" => [["a", "k", { wait: 1e9 }], "LIMIT_EXCEEDED"],
    "a negative wait" => [["a", "k", { wait: -1 }], "INVALID_UPDATE"], "an endless wait" => [["a", "k", { wait: Float::INFINITY }], "INVALID_UPDATE"]
  }.each do |name, (arguments, code)|
    it "refuses #{name}, and quotes nothing (K16, K21, K24)" do
      *path, options = arguments.last.is_a?(Hash) ? arguments : [*arguments, {}]
      expect { locks.acquire(*path, **options) }.to raise_error(Leasehold::Error::Invalid) { |error|
        expect(error.code).to eq(code)
        expect(error.message).not_to include("secret")
        expect(error.cause&.message.to_s).not_to include("secret")
      }
      expect(other.list.locks).to be_empty
    end
  end

  it "refuses a value that is too long, and releases the lock of the block all the same (K21)" do
    held = locks.acquire("user.update", "7")
    expect { held.release(value: "x" * 2_049) }.to raise_error(Leasehold::Error::Invalid, /value_bytes/)
    expect(held).to be_held
    held.release
    expect { locks.with("user.update", "7") { |lock| lock.value = "x" * 2_049 } }.to raise_error(Leasehold::Error::Invalid)
    expect([status.state, status.last.reason]).to eq(%i[free failed])
  end

  it "lists the locks of a namespace in pages (K16)" do
    [%w[user b], %w[user a], %w[user.update c], %w[other d]].each { |path| locks.acquire(*path) }
    first = other.list("user", limit: 2)
    rest = other.list("user", limit: 2, after: first.locks.last)
    expect([first, rest].map { |page| [page.locks.map(&:key), page.truncated?] }).to eq([[%w[a b], true], [%w[c], false]])
    expect(other.list.locks.size).to eq(4)
  end

  it "lets an operator take a lock, and tells its holder (K19, K20)" do
    short = locks_of(@server.address, { session_duration_seconds: 3, session_grace_seconds: 60 })
    held, kept = %w[7 8].map { |key| short.acquire("user.update", key) }
    told = Queue.new
    held.on_lost { told << :lost }
    kept.on_lost { told << :wrong }
    expect { other.force("user.update", "7", fence: held.fence + 1) }.to raise_error(Leasehold::Error::FencePassed)
    other.force("user.update", "7", fence: held.fence)
    expect(status).to have_attributes(state: :withheld, fence: held.fence)
    expect(other.try_acquire("user.update", "7")).to be_nil

    expect(next_of(told)).to eq(:lost)
    expect([held.held?, held.remaining, kept.held?]).to eq([false, 0.0, true])
    expect { held.check! }.to raise_error(Leasehold::Error::FencePassed, /operator/)
    expect { held.release }.to raise_error(Leasehold::Error::FencePassed)
    expect([held.release, kept.release, told.size]).to eq([false, true, 0])
  end

  it "believes no late answer with a grant that an operator took meanwhile (K20)" do
    held = locks_of(@server.address, { session_duration_seconds: 3, session_grace_seconds: 60 }).acquire("user.update", "7")
    told = Queue.new
    held.on_lost { told << :lost }
    other.force("user.update", "7", fence: held.fence)
    expect(next_of(told)).to eq(:lost)

    # The late answer to an acquire makes such a lock.
    late = Leasehold::HeldLock.new(*%i[@session @path @fence @ask_id].map { |name| held.instance_variable_get(name) })
    late.on_lost { told << :late }
    expect([late.held?, next_of(told)]).to eq([false, :late])
  end

  it "passes a lock on at once if an operator says so (K20)" do
    held = locks.acquire("user.update", "7")
    other.force("user.update", "7", fence: held.fence, at_once: true)
    expect(other.try_acquire("user.update", "7").fence).to be > held.fence
    expect { held.release }.to raise_error(Leasehold::Error::FencePassed)
  end

  it "passes its locks on when it is closed" do
    held = locks.acquire("user.update", "7")
    threads = Thread.list.grep_v(Thread.current).map(&:name).compact.grep(/leasehold/).size
    locks.close
    expect([status.state, status.last.reason, held.held?]).to eq([:free, :closed, false])
    Support::Waiting.wait_for("the threads to end") { Thread.list.map(&:name).compact.grep(/leasehold/).size < threads }
    expect(locks.acquire("user.update", "7")).to be_held
  end

  it "opens another session if the server has ended its own" do
    held = locks.acquire("user.update", "7")
    id = [held.instance_variable_get(:@session).id].first
    stub = held.instance_variable_get(:@session).calls
    stub.run(:close_session, described_class::Messages.close(id))
    lost = Queue.new
    held.on_lost { lost << :lost }
    expect(locks.acquire("user.update", "8")).to be_held
    expect([held.held?, next_of(lost)]).to eq([false, :lost])
  end

  it "shows no key and no value (K24)" do
    held = locks.acquire("user.update", "secret")
    held.release(value: "secret")
    texts = [held, locks, other.get("user.update", "secret"), other.get("user.update", "secret").last].map(&:inspect)
    expect(texts.join).not_to include("secret")
  end

  it "needs no cell" do
    expect { Leasehold::Client.new(locks.instance_variable_get(:@configuration)) }.to raise_error(Leasehold::Error::Misconfigured, /cell_id/)
    expect(locks.acquire("user.update", "7")).to be_held
  end

  describe "without an answer of the server" do
    let(:locks) { locks_of(@server.address, Support::LockSessions::STEADY) }

    it "keeps its lock over a restart of the server (K07, K11)" do
      terms = { session_duration_seconds: 2, session_grace_seconds: 60 }
      held = locks_of(@server.address, terms).acquire("user.update", "7")
      told = Queue.new
      held.on_jeopardy { told << :jeopardy && Queue.new.pop }
      held.on_lost { told << :lost }
      @server.kill
      expect(next_of(told)).to eq(:jeopardy)
      # A block that does not return delays no renewal.
      @server.start
      Support::Waiting.wait_for("the session to be safe again") { held.standing == :safe }
      expect(status.fence).to eq(held.fence)
      expect([held.release, told.size]).to eq([true, 0])
    end

    it "counts its deadline from the sending of a renewal, not from the answer (K11)" do
      Support::TcpProxy.run(@server.address) do |proxy|
        held_for = 15 / 16r * Support::LockSessions::LONG.values.sum
        # No renewal is due for 20 minutes, so that the only one is that of the thread.
        late = locks_of(proxy.address)
        held = late.acquire("user.update", "7")
        Support::Waiting.wait_for("the deadline to be near") { held.remaining < held_for - 2 }
        proxy.hold_answers
        bytes, begun_at = proxy.client_bytes, boot_clock
        renewal = Thread.new { late.send(:session).renew }
        Support::Waiting.wait_for("a renewal") { proxy.client_bytes > bytes }
        sent_at, remaining = boot_clock, held.remaining
        Support::Waiting.wait_for("the answer to be late") { held.remaining < remaining - 1 }
        proxy.release_answers
        expect(renewal.value).to be(true)
        before, remaining, after = boot_clock, held.remaining, boot_clock
        expect(after + remaining).to be >= begun_at + held_for
        expect(before + remaining).to be < sent_at + held_for + 0.2
      end
    end

    it "tells the loss by its own clock, before the server can pass the lock on (K11)" do
      held = locks.acquire("user.update", "7")
      told = Queue.new
      %i[on_jeopardy on_lost].each { |event| held.public_send(event) { told << event } }
      held.on_lost { raise "on purpose" }
      Process.kill("STOP", @server.pid)
      expect([next_of(told), next_of(told)]).to eq(%i[on_jeopardy on_lost])
      expect([held.standing, held.remaining]).to eq([:lost, 0.0])
      held.on_lost { told << :late }
      expect(next_of(told)).to eq(:late)
      expect { held.release }.to raise_error(Leasehold::Error::SessionLost)

      Process.kill("CONT", @server.pid)
      expect(status.fence).to eq(held.fence)
      expect(locks.acquire("user.update", "7", wait: 60).fence).to be > held.fence
    end

    it "raises from the block form if the lock was lost meanwhile" do
      work = lambda do |held|
        lost = Queue.new
        held.on_lost { lost << 1 }
        @server.kill
        next_of(lost)
        :result
      end
      expect { locks.with("user.update", "7", &work) }.to raise_error(Leasehold::Error::SessionLost)
    end

    it "repeats a release until it is answered" do
      held = locks_of(@server.address).acquire("user.update", "7")
      @server.kill
      expect([held.release, held.held?]).to eq([false, false])
      @server.start
      Support::Waiting.wait_for("the release") { status.state == :free }
      expect(status.last.reason).to eq(:succeeded)
    end

    it "keeps its place in the queue over a restart of the server (K22)" do
      held = other.acquire("user.update", "7")
      waiting = Thread.new { locks_of(@server.address).acquire("user.update", "7", wait: 60) }
      wait_for_waiters(other, "7", 1)
      @server.stop
      @server.start
      held.release
      expect(waiting.value.fence).to be > held.fence
    end
  end
end
