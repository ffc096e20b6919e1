# frozen_string_literal: true

require "rails_helper"
require "leasehold/rspec"

RSpec.describe Leasehold::TestHelp::LockServer, :rails do
  include Support::LockSessions

  before { server.kill }
  after { clear_locks }

  let!(:stub) { stub_claims_server }

  def status(key = "7")
    stub.locks.get("user.update", key)
  end

  # @return [Leasehold::HeldLock] a lock of the application, and a queue that `on_lost` fills
  def watched(locks, key = "7", **share)
    told = Queue.new
    [locks.acquire("user.update", key, **share).on_lost { told << :lost }, told]
  end

  def waiting_thread(key = "7", **options, &block)
    before = status(key).waiting
    Thread.new { Leasehold.lock("user.update", key, wait: 60, **options, &block) }
          .tap { |thread| thread.report_on_exception = false }
          .tap { wait_for_waiters(stub.locks, key, before + 1) }
  end

  it "has a lock held by another process, until that one releases it (K01, K03)" do
    held = stub.hold_lock("user.update", 7)
    expect { |block| expect { Leasehold.lock("user.update", 7, &block) }.to raise_error(Leasehold::Error::LockHeld) }.not_to yield_control
    expect { stub.hold_lock("user.update", 7) }.to raise_error(Leasehold::Error::LockHeld)

    held.release(value: "done")
    expect(Leasehold.lock("user.update", 7) { |own| own.fence > held.fence }).to be(true)
    expect(Leasehold.locks.get("user.update", 7).last.reason).to eq(:succeeded)
  end

  it "serves threads that wait, in the order of their arrival (K01, K08)" do
    held = stub.hold_lock("user.update", 7)
    places, order = Queue.new, Queue.new
    threads = Array.new(3) { |number| waiting_thread(on_wait: places.method(:push)) { order << number } }
    expect(Array.new(3) { next_of(places) }).to eq([0, 1, 2])
    held.release
    threads.each { |thread| thread.join(Support::Waiting::DEADLINE_SECONDS) }

    expect(Array.new(3) { next_of(order) }).to eq([0, 1, 2])
  end

  it "refuses the wait of a thread for a lock that it holds itself (K15)" do
    Leasehold.lock("user.update", 7) do
      expect { Leasehold.lock("user.update", 7, wait: 60) { raise "run" } }.to raise_error(Leasehold::Error::LockCircle)
      expect { Leasehold.lock_all(["user.update", 8], ["user.update", 7], wait: 60) { raise "run" } }
        .to raise_error(Leasehold::Error::LockCircle)
      expect { Leasehold.lock("user.update", 7) { raise "run" } }.to raise_error(Leasehold::Error::LockHeld)
      expect([status, status("8")].map { |lock| [lock.state, lock.waiting] }).to eq([[:held, 0], [:free, 0]])
    end
    # A thread that is started in the block waits for the end of the block.
    thread = Leasehold.lock("user.update", 7) { waiting_thread { :served } }
    expect(thread.join(Support::Waiting::DEADLINE_SECONDS)&.value).to eq(:served)
  end

  it "ends waits after `longest_wait`, and none before its time (K10)" do
    stub.hold_lock("user.update", 7)
    stub.longest_wait = 0
    before = boot_clock
    expect { Leasehold.lock("user.update", 7, wait: 60) { nil } }.to raise_error(Leasehold::Error::LockHeld)
    expect(boot_clock - before).to be < 30
    stub.longest_wait = nil
    before = boot_clock
    expect(Leasehold.locks.acquire("user.update", 7, wait: 0.05)).to be_nil
    expect([boot_clock - before, status.waiting]).to match([be >= 0.05, 0])
  end

  it "tells the holder at once that its lock was taken, and passes it on by `end_withholding` (K20)" do
    held, told = watched(Leasehold.locks)
    waiting = waiting_thread(&:fence)
    stub.force_lock("user.update", 7)

    expect([held.held?, next_of(told), status.state, status.waiting]).to eq([false, :lost, :withheld, 1])
    stub.end_withholding("user.update", 7)
    expect(waiting.value).to be > held.fence
    expect { stub.end_withholding("user.update", 7) }.to raise_error(ArgumentError, /not withheld/)
    expect { stub.force_lock("user.update", 7) }.to raise_error(Leasehold::Error::FencePassed)
  end

  it "has a lock that other processes share, and takes one of its slots (K13, K20)" do
    reader = stub.hold_lock("user.update", 7, shared: true)
    expect([reader.slot, Leasehold.lock("user.update", 7, shared: true, &:slot)]).to eq([1, 2])
    expect { Leasehold.lock("user.update", 7) { nil } }.to raise_error(Leasehold::Error::LockHeld)
    reader.release

    other, told = stub.hold_lock("user.update", "p", permits: 2), Queue.new
    held = Leasehold.locks.acquire("user.update", "p", permits: 2).on_lost { told << :lost }
    expect { stub.hold_lock("user.update", "p", permits: 2) }.to raise_error(Leasehold::Error::LockHeld)
    expect { stub.force_lock("user.update", "p") }.to raise_error(Leasehold::Error::FencePassed)
    stub.force_lock("user.update", "p", slot: held.slot)
    expect([next_of(told), held.held?, other.held?, status("p").taken_slots]).to eq([:lost, false, true, 2])
    stub.end_withholding("user.update", "p", slot: held.slot)
    expect(Leasehold.locks.acquire("user.update", "p", permits: 2)).to have_attributes(slot: held.slot, fence: be > held.fence)
  end

  it "expires the session of the application, or of another holder (K06)" do
    expect { stub.expire_session }.to raise_error(ArgumentError, /no session/)
    held, told = watched(Leasehold.locks)
    waiting = Thread.new { stub.other_locks.acquire("user.update", 7, wait: 60).fence }
    wait_for_waiters(stub.locks, "7", 1)
    stub.expire_session
    expect([held.held?, next_of(told), waiting.value > held.fence]).to eq([false, :lost, true])

    stub.expire_session(status.session_id)
    expect([status.state, status.last.reason]).to eq(%i[free expired])
    expect(Leasehold.locks.acquire("user.update", 7)).to be_held
  end

  it "puts the application's session into jeopardy while a block runs (K11)" do
    expect { stub.jeopardize_session { nil } }.to raise_error(ArgumentError, /no session/)
    held, told = watched(Leasehold.locks)
    held.on_jeopardy { told << :jeopardy }
    seen = stub.jeopardize_session { [next_of(told), held.standing, held.held?, outcome { stub.other_locks.get("a", "b") }.first] }

    expect(seen).to eq([:jeopardy, :jeopardy, true, Leasehold::Error::Unavailable])
    expect([held.standing, told.size, held.release]).to eq([:safe, 0, true])
  end

  it "is unreachable while it is stopped, and waits go on after it (K22)" do
    held = stub.hold_lock("user.update", 7)
    waiting = waiting_thread(&:held?)
    stub.stop
    expect { Leasehold.locks.get("user.update", 7) }.to raise_error(Leasehold::Error::Unavailable)
    stub.start
    held.release
    expect(waiting.value).to be(true)
  end

  it "opens a stream only for a lock that is held (K01)" do
    stub.hold_lock("a", 2)
    names = []
    subscriber = ->(name, *) { names << name.delete_suffix(".leasehold") }
    ActiveSupport::Notifications.subscribed(subscriber, /acquire_lock\.leasehold\z/) do
      Leasehold.lock("a", 1, wait: 60) { nil }
      expect { Leasehold.lock("a", 2, wait: 0.01) { nil } }.to raise_error(Leasehold::Error::LockHeld)
    end

    expect(names).to eq(%w[try_acquire_lock try_acquire_lock acquire_lock])
  end

  it "needs no settings of a server, and publishes the events of calls" do
    Leasehold.configuration.address = nil
    Leasehold.configuration.store_id = SecureRandom.uuid
    names = []
    subscriber = ->(name, *) { names << name }
    ActiveSupport::Notifications.subscribed(subscriber, /_lock\.leasehold\z/) { Leasehold.lock("a", 1) { nil } }

    expect(names).to eq(%w[try_acquire_lock.leasehold release_lock.leasehold])
  ensure
    Leasehold.configuration.store_id = nil
  end

  it "has a dead holder's lock cleaned up, in namespaces that the test names (K17)" do
    stub.reap_namespace("user", attempts: 1)
    held = stub.hold_lock("user.update", "7")
    reaped = Thread.new { Leasehold.reap("user", wait: 60) { |orphan| [orphan.former_fence, orphan.attempt, orphan.held?] } }
    Support::Waiting.wait_for("the thread to wait") { reaped.status == "sleep" }
    stub.expire_session(status.session_id)
    expect(reaped.value).to eq([held.fence, 1, true])
    expect(status).to have_attributes(state: :free, obituary: nil)
    expect(Leasehold.reap("user", wait: 1) { raise "nothing is orphaned" }).to be_nil
    expect { stub.reap_namespace("user", attempts: 0) }.to raise_error(Leasehold::Error::Invalid)
  end

  it "ends its sessions, their threads and all waits with the test" do
    # A session of an earlier spec may wait for its server, which is gone.
    threads = Thread.list
    stub.hold_lock("user.update", 7)
    held = Leasehold.locks.acquire("user.update", "8")
    waiting = waiting_thread { nil }
    stub.close

    expect { waiting.value }.to raise_error(Leasehold::Error::Misconfigured, /test of this stub server has ended/)
    expect([held.held?, stub.locks.session_id]).to eq([false, nil])
    Support::Waiting.wait_for("the threads to end") do
      (Thread.list - threads).filter_map(&:name).grep(/leasehold-s/).empty?
    end
    expect { stub.locks.acquire("user.update", "8") }.to raise_error(Leasehold::Error::Misconfigured)
  end

  it "gives a later test none of the locks, and larger fences, which a guard in the database accepts (K05, K18)" do
    connection = ActiveRecord::Base.connection
    connection.execute(Leasehold::Native::GUARD_SQL)
    held = Leasehold.locks.acquire("user.update", 7)
    connection.transaction { held.guard! }
    restore_leasehold
    Leasehold::TestHelp::Replacements.begin_test(self)
    later = stub_claims_server.locks.try_acquire("user.update", 7)
    connection.transaction { later.guard! }

    expect(later.fence).to be > held.fence
    expect(held).not_to be_held
  ensure
    Support::Guard.remove
  end

  it "belongs to the threads that its test has started, until the test ends" do
    asked, answers = Queue.new, Queue.new
    thread = Thread.new { answers << Leasehold::TestHelp::Replacements.running while asked.pop }
    asked << true
    expect(next_of(answers)).to be(self)
    restore_leasehold
    asked << true
    expect(next_of(answers)).to be_nil
    expect(Thread.current.group).to be(ThreadGroup::Default)
  ensure
    asked << false
    thread&.join
  end

  it "keeps the locks of a group of tests over a rollback, and copies them for each test" do
    restore_leasehold
    group_server = stub_claims_server
    connection = ActiveRecord::Base.connection
    connection.begin_transaction(joinable: false, _lazy: false)
    User.create!(username: "alice")
    held = group_server.hold_lock("user.update", 7)
    connection.rollback_transaction
    expect(held.check!).to be(held)

    Leasehold::TestHelp::Replacements.begin_test(self)
    expect(Leasehold.locks.try_acquire("user.update", 7)).to be_nil
    stub_claims_server.force_lock("user.update", 7, at_once: true)
    expect(Leasehold.locks.try_acquire("user.update", 7)).to be_held
    expect(held.release).to be(true)
  ensure
    Leasehold::TestHelp::Replacements.remove(:group)
  end

  # Two processes, and the ways in which the time of a session passes for them.
  Side = Struct.new(:locks, :other, :short_lived, :expire, keyword_init: true)

  def stub_side
    Side.new(locks: stub.locks, other: stub.other_locks, short_lived: stub.locks, expire: ->(_) { stub.expire_session })
  end

  # The holder learns of a force with its next renewal, after a second.
  def server_side(address)
    locks = locks_of(address, { session_duration_seconds: 3, session_grace_seconds: 60 })
    short_lived = locks_of(address, Support::LockSessions::SHORT)
    # Without its thread, the session is silent.
    expire = ->(held) { held.instance_variable_get(:@session).instance_variable_get(:@thread).kill }
    Side.new(locks: locks, other: locks_of(address), short_lived: short_lived, expire: expire)
  end

  # Plays a script, and returns what the callers see in each step, without ids and times.
  def play(side)
    steps = %i[
      contention waiting interruption refusals lists blocks readers permits together wait_for_all force force_of_slot
      force_at_once expiry cleanup close
    ]
    steps.to_h { |step| [step, send("see_#{step}", side)] }
  end

  def plain(lock)
    last = lock.last && [lock.last.reason, lock.last.value]
    obituary = lock.obituary && lock.obituary.to_h.slice(:reason, :attempts, :most_attempts)
    shares = [lock.slot, lock.taken_slots, lock.permits]
    [lock.namespace, lock.key, lock.state, lock.fence.nil?, lock.session_id.nil?, lock.waiting, last, obituary, *shares]
  end

  def seen(side, key = "7")
    plain(side.other.get("user.update", key))
  end

  # A long wait is shortened by the time that the call has taken, so its number differs.
  def outcome
    result = yield
    result.is_a?(Leasehold::HeldLock) ? result.standing : result
  rescue Leasehold::Error => error
    [error.class, error.code, error.message.sub(/`wait_micros` is \d+/, "`wait_micros` is …")]
  end

  def see_contention(side)
    free, held = seen(side), side.locks.try_acquire("user.update", 7)
    others = [side.locks, side.other].map { |locks| locks.try_acquire("user.update", "7") }
    before = seen(side)
    released = [held.release(value: "done"), held.release, outcome { held.check! }]
    [free, others, before, released, seen(side), held.standing, held.remaining]
  end

  def see_waiting(side)
    held, places = side.locks.acquire("user.update", "7", wait: 1), Queue.new
    waiting = Thread.new { side.other.acquire("user.update", "7", wait: 60, on_wait: places.method(:push)) }
    wait_for_waiters(side.other, "7", 1)
    held.release(failed: true, value: "next")
    granted = waiting.value
    [next_of(places), granted.fence > held.fence, seen(side), side.locks.acquire("user.update", "7", wait: 0.05), granted.release]
  end

  def see_interruption(side)
    held = side.other.acquire("user.update", "7")
    waiting = Thread.new { outcome { side.locks.with("user.update", "7", wait: 60) { nil } } }
    waiting.report_on_exception = false
    wait_for_waiters(side.other, "7", 1)
    waiting.kill.join
    [seen(side), held.release, seen(side)]
  end

  def see_refusals(side)
    paths = [["", "k"], ["a..b", "k"], ["a", ""], ["a", "k\n"], ["a", "k" * 600], ["n" * 300, "k"]]
    held = side.locks.acquire("a", "k")
    [
      *paths.map { |path| outcome { side.locks.acquire(*path) } },
      outcome { side.locks.acquire("a", "k", wait: 1e9) }, outcome { side.other.with("a", "k", wait: 0.05) { nil } },
      outcome { held.release(value: "x" * 2_049) }, outcome { held }, outcome { held.release },
      outcome { side.locks.list("a..b") }, outcome { side.locks.list("a", limit: 1_001) }
    ]
  end

  def see_lists(side)
    held = [%w[user b], %w[user a], %w[user.update c], %w[user-2 d]].map { |path| side.locks.acquire(*path) }
    first = side.other.list("user", limit: 2)
    pages = [first, side.other.list("user", limit: 2, after: first.locks.last), side.other.list]
    shown = pages.map { |page| [page.locks.map { |lock| plain(lock) }, page.truncated?] }
    [shown, held.map(&:release), side.other.list.locks]
  end

  def see_blocks(side)
    ends = [-> (lock) { lock.value = "seen" }, ->(_) { raise IndexError }].map do |work|
      [(side.locks.with("user.update", "7", wait: 1, &work) rescue $!.class), seen(side)]
    end
    [ends, outcome { side.locks.with("user.update", "7", wait: 1) { |lock| lock.value = "x" * 2_049 } }, seen(side)]
  end

  def see_readers(side)
    readers = [side.locks, side.other].map { |locks| locks.acquire("user.update", "s", shared: true) }
    writer = Thread.new { side.locks.acquire("user.update", "s", wait: 60) }
    wait_for_waiters(side.other, "s", 1)
    behind = side.other.try_acquire("user.update", "s", shared: true)
    later = Thread.new { side.other.acquire("user.update", "s", wait: 60, shared: true) }
    wait_for_waiters(side.other, "s", 2)
    before = seen(side, "s")
    released = readers.map(&:release)
    alone = writer.value
    seen_alone, served = seen(side, "s"), [alone, alone.release && later.value]
    [readers.map(&:slot), behind, before, released, seen_alone, served.map(&:slot), served.map(&:release), seen(side, "s")]
  end

  def see_permits(side)
    held = [side.locks, side.other].map { |locks| locks.acquire("user.update", "p", wait: 1, permits: 2) }
    others = [{ permits: 2 }, { permits: 3 }, { shared: true }, {}].map { |share| side.other.try_acquire("user.update", "p", **share) }
    waiting = Thread.new { side.other.acquire("user.update", "p", wait: 60, permits: 2) }
    wait_for_waiters(side.other, "p", 1)
    listed = [side.other.list("user.update"), side.other.list("user.update", limit: 2)].map { |page| page.locks.map { |lock| plain(lock) } }
    rest = side.other.list("user.update", after: side.other.list("user.update", limit: 2).locks.last).locks.map { |lock| plain(lock) }
    released = held[1].release(value: "one")
    granted = waiting.value
    wrong = [{ permits: 257 }, { permits: 0 }, { shared: true, permits: 2 }].map { |share| outcome { side.locks.acquire("user.update", "w", **share) } }
    [held.map(&:slot), others, listed, rest, released, granted.slot, seen(side, "p"), [held[0], granted].map(&:release), seen(side, "p"), wrong]
  end

  def see_all(side, *keys)
    keys.map { |key| seen(side, key) }
  end

  def named(*keys)
    keys.map { |key| ["user.update", key] }
  end

  def see_together(side)
    held = side.other.acquire("user.update", "t2")
    refused = [side.locks.acquire_all(*named("t1", "t2", "t3")), side.locks.acquire_all(*named("t1", "t2"), wait: 0.05)]
    before = [see_all(side, "t2", "t3"), seen(side, "t1").first(6), held.release]
    all = side.locks.acquire_all(*named("t1", "t2"), ["user.update", "t3", { permits: 2 }], ["user.update", "t4", { shared: true }])
    during, released = see_all(side, "t1", "t2", "t3", "t4"), all.map(&:release)
    failed = outcome { side.locks.with_all(*named("t1", "t2"), wait: 1) { |one, other| raise Leasehold::Error, [one, other].map(&:key).join } }
    wrong = [[], named(*"a".."q"), named("a", "a"), named("a", ""), [["a"]], [["a", "b", { wait: 1 }]], [["a", "b", { shared: true, permits: 2 }]]]
    refusals = wrong.map { |names| outcome { side.locks.acquire_all(*names, wait: 1) } }
    [refused, before, all.map(&:slot), during, released, failed, see_all(side, "t1", "t2"), refusals]
  end

  # The locks that came first are kept. A force of one of them, the end of the thread or the grant of the last ends the wait.
  def see_wait_for_all(side)
    ends = {
      grant: ->(held, _) { held.release }, kill: ->(_, waiting) { waiting.kill },
      force: ->(*) { side.other.force("user.update", "w1", fence: side.other.get("user.update", "w1").fence, at_once: true) }
    }
    ends.map do |name, finish|
      held = side.other.acquire("user.update", "w2")
      waiting = Thread.new { side.locks.with_all(*named("w1", "w2", "w3"), wait: 60) { |*all| all.map(&:key) } }
      waiting.report_on_exception = false
      wait_for_waiters(side.other, "w2", 1)
      during = see_all(side, "w1", "w2", "w3").push(side.other.try_acquire("user.update", "w1"))
      finish.call(held, waiting)
      result = outcome { waiting.value }
      after = see_all(side, "w1", "w2", "w3")
      [name, during, result, after, held.release]
    end
  end

  def see_force_of_slot(side)
    (held, told), other = watched(side.locks, "slot", permits: 3), side.other.acquire("user.update", "slot", permits: 3)
    kept = side.locks.acquire("user.update", "slot", permits: 3)
    wrong = [0, other.slot, 257].map { |slot| outcome { side.other.force("user.update", "slot", fence: held.fence, slot: slot) } }
    side.other.force("user.update", "slot", fence: held.fence, slot: held.slot)
    lost = [next_of(told), outcome { held.release }, kept.standing, other.standing, plain(side.other.get("user.update", "slot", slot: held.slot))]
    at_once = outcome { side.other.force("user.update", "slot", fence: held.fence, slot: held.slot, at_once: true) }
    [wrong, lost, at_once, seen(side, "slot"), [other, kept].map(&:release), seen(side, "slot")]
  end

  def see_force(side)
    held, told = watched(side.locks, "forced")
    wrong = outcome { side.other.force("user.update", "forced", fence: held.fence + 1) }
    taken = Array.new(2) { outcome { side.other.force("user.update", "forced", fence: held.fence) } }
    [
      wrong, taken, seen(side, "forced"), next_of(told), side.other.try_acquire("user.update", "forced"),
      held.standing, outcome { held.check! }, outcome { held.release }, held.release
    ]
  end

  def see_force_at_once(side)
    held = side.locks.acquire("user.update", "7")
    side.other.force("user.update", "7", fence: held.fence, at_once: true)
    later = side.other.try_acquire("user.update", "7")
    [later.fence > held.fence, seen(side), outcome { held.release }, later.release, seen(side)]
  end

  def see_expiry(side)
    held, told = watched(side.short_lived)
    waiting = Thread.new { side.other.acquire("user.update", "7", wait: 60) }
    wait_for_waiters(side.other, "7", 1)
    side.expire.call(held)
    lost, later = next_of(told), waiting.value
    [
      lost, later.fence > held.fence, held.standing, outcome { held.check! }, outcome { held.release }, seen(side),
      later.release, outcome { side.short_lived.try_acquire("user.update", "7") }
    ]
  end

  def see_cleanup(side)
    held = side.short_lived.acquire("reaped.runner", "7")
    side.expire.call(held)
    facts = ->(orphan) { [orphan.former_fence == held.fence, orphan.attempt, orphan.most_attempts, orphan.fence > held.fence] }
    failed = Array.new(2) { fail_in_cleanup(side) }
    decisions = [[held.fence + 1, :retry], [held.fence, :wrong], [held.fence, :retry], [held.fence, :retry]].map do |fence, resolution|
      outcome { side.other.resolve_orphan("reaped.runner", "7", fence: fence, resolution: resolution) }
    end
    cleaned = side.locks.reap("reaped", wait: 60, &facts)
    refused = ["", "a..b"].map { |namespace| outcome { side.locks.reap(namespace, wait: 1) { nil } } }
    late = outcome { side.other.resolve_orphan("reaped.runner", "7", fence: held.fence, resolution: :cleaned) }
    [failed, decisions, cleaned, plain(side.other.get("reaped.runner", "7")), refused, late]
  end

  def fail_in_cleanup(side)
    side.locks.reap("reaped", wait: 60) { raise IndexError }
  rescue IndexError
    plain(side.other.get("reaped.runner", "7"))
  end

  def see_close(side)
    held = side.locks.acquire("user.update", "8")
    side.locks.close
    [held.standing, outcome { held.release }, seen(side, "8"), outcome { side.locks.acquire("user.update", "8") }]
  end

  it "shows callers the same as the server (K01, K03, K05, K06, K08, K10, K13, K14, K16, K17, K19, K20, K21)" do
    reaped = "[[locks.reaped]]\nnamespaces = [\"reaped\"]\nattempts = 2\n"
    real = Support::ClaimsServer.run(settings: reaped) { |server| play(server_side(server.address)) }
    stub.reap_namespace("reaped", attempts: 2)
    stubbed = play(stub_side)

    real.each { |step, seen| expect([step, stubbed[step]]).to eq([step, seen]) }
    # The steps reach what they are named after.
    expect(real[:readers].values_at(0, 1, 5)).to eq([[1, 2], nil, [0, 1]])
    expect(real[:permits].values_at(0, 1)).to eq([[1, 2], [nil] * 4])
    expect(real[:together].values_at(0, 2)).to eq([[nil, nil], [0, 0, 1, 1]])
    expect(real[:wait_for_all].map { |seen| seen[2] }).to match([%w[w1 w2 w3], nil, include(Leasehold::Error::LockHeld)])
    expect(real[:force_of_slot][1]).to match([:lost, include(Leasehold::Error::FencePassed), :safe, :safe, include(:withheld)])
    expect(real[:force].values_at(2, 3)).to match([include(:withheld), :lost])
    expect(real[:expiry].values_at(0, 5)).to match([:lost, include([:expired, ""])])
    expect(real[:cleanup].first).to match([include(:orphaned), include(:set_aside)])
  end
end
