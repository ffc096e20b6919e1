# frozen_string_literal: true

# Locks that several processes hold: as readers do, or as one of a number of permits.
RSpec.describe Leasehold::Locks, "shared" do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:locks) { locks_of(@server.address) }
  let(:other) { locks_of(@server.address) }

  def status(key, slot: 0)
    other.get("user.update", key, slot: slot)
  end

  def permit(locks, key = "p", **options)
    locks.acquire("user.update", key, permits: 2, **options)
  end

  it "lets readers in together, and then the process that wants the lock alone before later readers (K13)" do
    readers = [locks, other].map { |process| process.acquire("user.update", "s", shared: true) }
    expect(readers.map(&:slot)).to eq([1, 2])
    expect(status("s")).to have_attributes(state: :shared, fence: nil, slot: 0, taken_slots: 2, permits: 0)

    order = Queue.new
    waiting = { writer: {}, reader: { shared: true } }.each_with_index.map do |(name, share), count|
      Thread.new { locks.with("user.update", "s", wait: 60, **share) { |held| order << [name, held.slot] } }
            .tap { wait_for_waiters(other, "s", count + 1) }
    end
    # A slot is free, but a later reader waits behind the writer.
    expect(other.try_acquire("user.update", "s", shared: true)).to be_nil
    readers[0].release
    expect([status("s").waiting, order.size]).to eq([2, 0])
    readers[1].release
    expect(Array.new(2) { next_of(order) }).to eq([[:writer, 0], [:reader, 1]])
    waiting.each(&:join)
    expect(status("s").state).to eq(:free)
  end

  it "keeps the bound of permits, each with fences of its own (K13)" do
    guard, at_work, grants = Mutex.new, {}, Hash.new { |fences, slot| fences[slot] = [] }
    work = lambda do |process|
      8.times do
        process.with("user.update", "p", wait: 60, permits: 2) do |held|
          guard.synchronize do
            raise "two processes hold the permit #{held.slot}" if at_work[held.slot]

            at_work[held.slot] = true
            grants[held.slot] << held.fence
          end
          Thread.pass
          guard.synchronize { at_work.delete(held.slot) }
        end
      end
    end
    [locks, other, locks_of(@server.address)].map { |process| Thread.new { work.call(process) } }.each(&:join)

    expect(grants.keys.sort).to eq([1, 2])
    expect(grants.values.sum(&:size)).to eq(24)
    grants.each_value { |fences| expect(fences).to eq(fences.sort.uniq) }
    expect(status("p")).to have_attributes(state: :free, taken_slots: 0, waiting: 0)
  end

  it "lets those wait who share the lock in another way, and lists each slot after its lock (K13, K16)" do
    held = [permit(locks), permit(other)]
    [{ permits: 2 }, { permits: 3 }, { shared: true }, {}].each do |share|
      expect(other.try_acquire("user.update", "p", **share)).to be_nil
    end
    page = other.list("user", limit: 2)
    listed = [*page.locks, *other.list("user", limit: 2, after: page.locks.last).locks]
    expect(listed.map { |lock| [lock.slot, lock.state, lock.fence] })
      .to eq([[0, :shared, nil], *held.map { |lock| [lock.slot, :held, lock.fence] }])

    held[0].release(value: "half", failed: true)
    expect(status("p").last).to have_attributes(fence: held[0].fence, reason: :failed, value: "half")
    expect(status("p", slot: held[1].slot)).to have_attributes(state: :held, slot: held[1].slot)
  end

  it "tells only the holder of a slot that an operator takes (K20)" do
    told = { held: Queue.new, kept: Queue.new }
    held = permit(locks).on_lost { told[:held] << :lost }
    kept = permit(locks).on_lost { told[:kept] << :lost }
    expect { other.force("user.update", "p", fence: held.fence) }.to raise_error(Leasehold::Error::FencePassed)
    other.force("user.update", "p", fence: held.fence, slot: held.slot)
    locks.send(:session).renew
    expect([next_of(told[:held]), held.held?, kept.held?, told[:kept].size]).to eq([:lost, false, true, 0])
    expect { held.check! }.to raise_error(Leasehold::Error::FencePassed)
    expect(status("p", slot: held.slot)).to have_attributes(state: :withheld, fence: held.fence)
    expect(kept.check!.release).to be(true)
    other.force("user.update", "p", fence: held.fence, slot: held.slot, at_once: true)
    expect(status("p").state).to eq(:free)
  end

  it "passes on a permit whose holder has died, and lets the others live (K06, K13)" do
    dying = locks_of(@server.address, Support::LockSessions::SHORT)
    lost, kept = permit(dying), permit(other)
    # Without its thread, the session is silent.
    dying.send(:session).instance_variable_get(:@thread).kill
    later = permit(other, wait: 60)
    expect(later).to have_attributes(slot: lost.slot, fence: be > lost.fence)
    expect([kept.held?, status("p", slot: kept.slot).fence]).to eq([true, kept.fence])
  end

  it "cleans up a slot under its number (K13, K17)" do
    settings = "[[locks.reaped]]\nnamespaces = [\"reaped\"]\nattempts = 2\n"
    Support::ClaimsServer.run(settings: settings) do |server|
      dying, cleaner = locks_of(server.address), locks_of(server.address)
      kept, lost = [cleaner, dying].map { |process| process.acquire("reaped", "p", permits: 2) }
      dying.close
      expect(cleaner.get("reaped", "p", slot: lost.slot).state).to eq(:orphaned)
      expect(cleaner.reap("reaped", wait: 60) { |orphan| [orphan.slot, orphan.former_fence] }).to eq([lost.slot, lost.fence])

      lost = dying.acquire("reaped", "p", permits: 2)
      dying.close
      expect { cleaner.resolve_orphan("reaped", "p", fence: lost.fence, resolution: :cleaned) }.to raise_error(Leasehold::Error::FencePassed)
      cleaner.resolve_orphan("reaped", "p", fence: lost.fence, resolution: :cleaned, slot: lost.slot)
      expect([cleaner.get("reaped", "p").taken_slots, kept.held?]).to eq([1, true])
      [cleaner, dying].each(&:close)
    end
  end

  {
    "both ways of sharing" => [{ shared: true, permits: 2 }, "INVALID_UPDATE"], "no permits" => [{ permits: 0 }, "INVALID_UPDATE"],
    "a negative number of permits" => [{ permits: -1 }, "INVALID_UPDATE"], "a text" => [{ permits: "2" }, "INVALID_UPDATE"],
    "more permits than a field holds" => [{ permits: 2**32 }, "INVALID_UPDATE"], "too many permits" => [{ permits: 257 }, "LIMIT_EXCEEDED"]
  }.each do |name, (share, code)|
    it "refuses #{name}, and quotes no key (K21, K24)" do
      expect { locks.acquire("user.update", "secret", **share) }.to raise_error(Leasehold::Error::Invalid) { |error|
        expect([error.code, error.message]).to match([code, including("permits")])
        expect(error.message).not_to include("secret")
      }
    end
  end

  it "refuses a number that no slot has (K21)" do
    { 257 => "LIMIT_EXCEEDED", -1 => "INVALID_UPDATE", "1" => "INVALID_UPDATE" }.each do |slot, code|
      expect { other.force("user.update", "k", fence: 1, slot: slot) }.to raise_error(Leasehold::Error::Invalid) { |error|
        expect(error.code).to eq(code)
      }
    end
  end
end
