# frozen_string_literal: true

require "timeout"

# Several locks that are granted together.
RSpec.describe Leasehold::Locks, "together" do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:locks) { locks_of(@server.address) }
  let(:other) { locks_of(@server.address) }

  def named(*keys)
    keys.map { |key| ["user.update", key] }
  end

  # Returns the state of each lock, the number of asks that wait for it, and the way in which its last grant ended.
  def seen(*keys)
    keys.map { |key| other.get("user.update", key) }.map { |lock| [lock.state, lock.waiting, lock.last&.reason] }
  end

  def waiting_thread(*keys, **options)
    thread = Thread.new { other.with_all(*named(*keys), wait: 60, **options) { |*all| all.map(&:key) } }
    thread.report_on_exception = false
    thread
  end

  def value_of(thread)
    Timeout.timeout(Support::Waiting::DEADLINE_SECONDS) { thread.value }
  end

  it "grants all or none, in the order of the names (K14)" do
    held = locks.acquire("user.update", "b")
    # Without a wait, or when the wait is over, nothing is held.
    [0, 0.05].each do |wait|
      expect(other.acquire_all(*named("a", "b", "c"), wait: wait)).to be_nil
      expect { other.with_all(*named("a", "b", "c"), wait: wait) { raise "run" } }.to raise_error(Leasehold::Error::LockHeld)
      expect(seen("a", "b", "c").map { |state, waiting, _| [state, waiting] }).to eq([[:free, 0], [:held, 0], [:free, 0]])
    end
    waiting = waiting_thread("c", "b", "a")
    wait_for_waiters(locks, "b", 1)
    # The locks that came first are kept for the thread.
    expect(locks.try_acquire("user.update", "a")).to be_nil
    held.release
    expect(value_of(waiting)).to eq(%w[c b a])
    expect(seen("a", "b", "c")).to eq([[:free, 0, :succeeded]] * 3)
  end

  it "shares each lock in its own way (K13, K14)" do
    permit = locks.acquire("user.update", "p", permits: 3)
    names = [["user.update", 7], ["user.update", :s, { shared: true }], ["user.update", "p", { permits: 3 }]]
    locks.with_all(*names) do |alone, reader, third|
      expect([alone.slot, reader.slot, third.slot, third.fence]).to eq([0, 1, 2, other.get("user.update", "p", slot: 2).fence])
    end
    expect([permit.held?, other.get("user.update", "p").taken_slots]).to eq([true, 1])
  end

  it "serves threads that name the locks in opposite orders (K14)" do
    at_work, served = Queue.new, Queue.new
    orders = [[locks, "abc"], [other, "cba"], [locks, "bca"], [other, "acb"]]
    threads = orders.map do |process, keys|
      Thread.new do
        10.times do
          process.with_all(*named(*keys.chars), wait: 60) do |*all|
            at_work << all
            served << at_work.size
            at_work.pop
          end
        end
      end
    end
    threads.each { |thread| value_of(thread) }
    expect(Array.new(served.size) { served.pop }).to eq([1] * 40)
  end

  it "releases all as failed if the block raises, or its thread is killed or interrupted (K03, K10)" do
    expect { locks.with_all(*named("a", "b")) { |_, second| second.release and raise IndexError } }.to raise_error(IndexError)
    expect(seen("a", "b")).to eq([[:free, 0, :failed], [:free, 0, :succeeded]])
    %i[kill raise].each do |ending|
      inside = Queue.new
      thread = Thread.new { locks.with_all(*named("c", "d")) { (inside << true) && Queue.new.pop } }
      thread.report_on_exception = false
      next_of(inside)
      thread.public_send(ending)
      ending == :kill ? value_of(thread) : expect { value_of(thread) }.to(raise_error(RuntimeError))
      expect(seen("c", "d")).to eq([[:free, 0, :failed]] * 2)
    end
  end

  it "leaves every lock if the wait is interrupted (K09, K10)" do
    held = locks.acquire("user.update", "b")
    waiting = waiting_thread("a", "b", "c")
    wait_for_waiters(locks, "b", 1)
    waiting.raise(Timeout::Error)
    expect { value_of(waiting) }.to raise_error(Timeout::Error)
    expect(seen("a", "b", "c")).to eq([[:free, 0, :left], [:held, 0, nil], [:free, 0, :left]])
    held.release
  end

  it "tells the loss of one lock, and releases the others all the same (K20)" do
    %w[a b c].each do |taken|
      told = Queue.new
      work = lambda do
        locks.with_all(*named("a", "b", "c")) do |*all|
          lost, *kept = all.partition { |held| held.key == taken }.flatten
          all.each { |held| held.on_lost { told << held.key } }
          other.force("user.update", taken, fence: lost.fence)
          locks.send(:session).renew
          expect([next_of(told), told.size, kept.map(&:held?)]).to eq([taken, 0, [true, true]])
          expect { lost.check! }.to raise_error(Leasehold::Error::FencePassed)
          kept.each(&:check!)
        end
      end
      expect(&work).to raise_error(Leasehold::Error::FencePassed)
      expect(seen(*(%w[a b c] - [taken]))).to eq([[:free, 0, :succeeded]] * 2)
      other.force("user.update", taken, fence: other.get("user.update", taken).fence, at_once: true)
    end
  end

  it "ends the wait if an operator takes a lock that was kept (K20)" do
    held = locks.acquire("user.update", "b")
    waiting = waiting_thread("a", "b")
    wait_for_waiters(locks, "b", 1)
    locks.force("user.update", "a", fence: locks.get("user.update", "a").fence, at_once: true)
    expect { value_of(waiting) }.to raise_error(Leasehold::Error::LockHeld)
    expect(seen("a", "b")).to eq([[:free, 0, :forced], [:held, 0, nil]])
    held.release
  end

  it "waits on after a restart of the server (K22)" do
    held = locks.acquire("user.update", "b")
    waiting = Thread.new { other.acquire_all(*named("a", "b"), wait: 60).map(&:fence) }
    wait_for_waiters(locks, "b", 1)
    kept = locks.get("user.update", "a").fence
    @server.kill
    @server.start
    held.release
    expect(value_of(waiting).first).to eq(kept)
  end

  it "asks anew if some asks of a broken stream have left (K14)" do
    calls, asked = locks.send(:session).calls, []
    allow(calls).to receive(:stream).and_wrap_original do |stream, method, request, *rest, **options, &block|
      asked << request.asks.map(&:ask_id)
      # The server knows the first ask only, as after a break during which the second one has left.
      first = { ask_id: request.asks[0].ask_id, lock: request.asks[0].lock }
      calls.run(:try_acquire_lock, Leasehold::Locks::Messages::Wire::TryAcquireLockRequest.new(session_id: request.session_id, **first)) if asked.one?
      stream.call(method, request, *rest, **options, &block)
    end
    all = locks.acquire_all(*named("a", "b"))
    expect([asked.size, asked[0] & asked[1]]).to eq([2, []])
    expect([all.map(&:held?), seen("a", "b")]).to eq([[true, true], [[:held, 0, :left], [:held, 0, nil]]])
  end

  {
    "no lock" => [[], "INVALID_UPDATE"], "a text" => [%w[secret], "INVALID_UPDATE"], "a name without a key" => [[["secret"]], "INVALID_UPDATE"],
    "an unknown option" => [[["a", "secret", { wait: 1 }]], "INVALID_UPDATE"], "a record" => [[["a", Object.new]], "INVALID_UPDATE"],
    "both ways of sharing" => [[["a", "secret", { shared: true, permits: 2 }]], "INVALID_UPDATE"],
    "a lock that is named twice" => [[%w[a secret], %w[a secret]], "INVALID_UPDATE"],
    "too many permits" => [[["a", "secret", { permits: 257 }]], "LIMIT_EXCEEDED"],
    "too many locks" => [Array.new(17) { |number| ["a", "secret#{number}"] }, "LIMIT_EXCEEDED"]
  }.each do |name, (names, code)|
    it "refuses #{name}, and quotes no key (K21, K24)" do
      expect { locks.acquire_all(*names) }.to raise_error(Leasehold::Error::Invalid) { |error|
        expect(error.code).to eq(code)
        expect([error.message, error.cause&.message].join).not_to include("secret")
      }
    end
  end
end
