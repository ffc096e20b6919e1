# frozen_string_literal: true

require "timeout"

# Threads that wait for each other's locks.
RSpec.describe Leasehold::Locks, "in a circle" do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:locks) { locks_of(@server.address) }
  let(:other) { locks_of(@server.address) }

  # Returns a thread that holds one lock, and calls the block under it once the queue has an item.
  def crossing_thread(process, own, go)
    inside = Queue.new
    thread = Thread.new do
      process.with("user.update", own) do
        inside << true
        next_of(go)
        yield
      end
    rescue Leasehold::Error::LockCircle => error
      error.code
    end
    next_of(inside)
    thread
  end

  def value_of(thread)
    Timeout.timeout(Support::Waiting::DEADLINE_SECONDS) { thread.value }
  end

  def seen(*keys)
    keys.map { |key| locks.get("user.update", key) }.map { |lock| [lock.state, lock.waiting] }
  end

  {
    "with" => ->(process, key) { process.with("user.update", key, wait: 60) { :served } },
    "with_all" => ->(process, key) { process.with_all(["user.update", key], wait: 60) { :served } }
  }.each do |name, ask|
    it "refuses one of two threads that ask for each other's locks by `#{name}`, and serves the other one (K15)" do
      [[locks, locks], [locks, other]].each do |first, second|
        go = Queue.new
        threads = [crossing_thread(first, "a", go) { ask.call(first, "b") }, crossing_thread(second, "b", go) { ask.call(second, "a") }]
        2.times { go << true }
        expect(threads.map { |thread| value_of(thread) }).to contain_exactly(:served, "LOCK_CIRCLE")
        expect(seen("a", "b")).to eq([[:free, 0]] * 2)
      end
    end
  end

  it "refuses a lock that is asked for again in its own block (K15)" do
    locks.with("user.update", "a") do
      expect { locks.with("user.update", "a", wait: 60) { raise "run" } }.to raise_error(Leasehold::Error::LockCircle)
      expect { locks.acquire("user.update", "a", wait: 60) }.to raise_error(Leasehold::Error::Changed)
      expect { locks.with_all(%w[user.update b], %w[user.update a], wait: 60) { raise "run" } }.to raise_error(Leasehold::Error::LockCircle)
      expect { locks.with("user.update", "a") { raise "run" } }.to raise_error(Leasehold::Error::LockHeld)
      expect(seen("a", "b")).to eq([[:held, 0], [:free, 0]])
    end
  end

  it "names the locks of all outer blocks (K15)" do
    locks.with("user.update", "a") do
      locks.with_all(%w[user.update b], %w[user.update c]) do
        locks.with("user.update", "d") do
          %w[a b c].each { |key| expect { locks.acquire("user.update", key, wait: 60) }.to raise_error(Leasehold::Error::LockCircle) }
        end
        # A block that has ended names its lock no more.
        locks.with("user.update", "d", wait: 60) { |held| expect(held.held?).to be(true) }
      end
    end
  end

  it "lets a thread and a fiber that are started in a block wait for its lock (K15)" do
    thread = locks.with("user.update", "a") do
      fiber = Fiber.new { locks.acquire("user.update", "a", wait: 0.6) }
      expect(fiber.resume).to be_nil
      started = Thread.new { locks.with("user.update", "a", wait: 60) { :served } }
      wait_for_waiters(other, "a", 1)
      # The server has searched for circles by the time of this answer.
      expect { locks.acquire("user.update", "a", wait: 60) }.to raise_error(Leasehold::Error::LockCircle)
      started
    end
    expect(value_of(thread)).to eq(:served)
  end

  it "does not count a lock that its block has released (K15)" do
    locks.with("user.update", "a") do |held|
      held.release
      next_holder = other.acquire("user.update", "a")
      expect(locks.acquire("user.update", "a", wait: 0.6)).to be_nil
      next_holder.release
      expect(locks.acquire("user.update", "a", wait: 60).release).to be(true)
    end
  end

  it "does not count a lock without a block (K15)" do
    held = locks.acquire("user.update", "a")
    expect(locks.acquire("user.update", "a", wait: 0.6)).to be_nil
    held.release
  end

  it "counts the lock of a cleanup (K15, K17)" do
    Support::ClaimsServer.run(settings: "[[locks.reaped]]\nnamespaces = [\"runner\"]\n") do |server|
      locks = locks_of(server.address)
      locks_of(server.address).tap { |dead| dead.acquire("runner", "7") }.close
      locks.reap("runner", wait: 60) do
        expect { locks.acquire("runner", "7", wait: 60) }.to raise_error(Leasehold::Error::LockCircle)
      end
    end
  end

  it "names the innermost 64 of many locks (K15, K21)" do
    nest = lambda do |keys, &block|
      keys.empty? ? block.call : locks.with("user.update", keys.first) { nest.call(keys.drop(1), &block) }
    end
    nest.call(Array.new(65, &:to_s)) do
      expect { locks.acquire("user.update", "1", wait: 60) }.to raise_error(Leasehold::Error::LockCircle)
      expect { locks.acquire("user.update", "64", wait: 60) }.to raise_error(Leasehold::Error::LockCircle)
      expect(locks.acquire("user.update", "0", wait: 0.6)).to be_nil
    end
  end
end
