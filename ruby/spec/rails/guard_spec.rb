# frozen_string_literal: true

require "rails_helper"

RSpec.describe "the guard of a lock (K18)", :rails do
  before do
    execute(Leasehold::Native::GUARD_SQL)
    execute("CREATE TABLE guarded_writes (number bigserial PRIMARY KEY, fence bigint)")
  end

  after do
    # A process that is stopped in its transaction would keep its locks of the tables.
    @formers&.each { |pid| end_process(pid) }
    execute("DROP TABLE guarded_writes")
    Support::Guard.remove
  end

  def end_process(pid)
    Process.kill("KILL", pid)
  rescue Errno::ESRCH
    nil
  end

  def execute(sql)
    ActiveRecord::Base.connection.execute(sql)
  end

  # @return [Array<Integer>] the fences of all committed writes
  def writes
    Support::Cell[1].query("SELECT fence FROM guarded_writes ORDER BY number").map { |row| Integer(row["fence"]) }
  end

  def write(fence)
    execute("INSERT INTO guarded_writes (fence) VALUES (#{fence})")
  end

  # Guards this thread's transaction with a fence of another time.
  def guard(fence, remaining = 60, resource: "user.update/7")
    Leasehold::Guard.new(User).call(resource, fence, remaining)
  end

  # Waits until the deadline of the transaction's guard has passed by the database's clock.
  def outlive_the_session
    Support::Waiting.wait_for("the deadline") do
      User.connection.uncached { User.connection.select_value("SELECT bool_and(commit_before < clock_timestamp()) FROM leasehold_guards") }
    end
  end

  # Waits until the guard of one transaction waits for another transaction.
  def wait_for_a_waiting_guard
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leasehold_guard%'"
    Support::Waiting.wait_for("a guard to wait") { Support::Cell[1].query(waiting).any? }
  end

  def holder(script)
    Support::CellProcess.new(Support::Cell[1], server.address, <<~RUBY)
      $stdout.sync = true
      Leasehold.configuration.tls = { insecure: true }
      Leasehold.configuration.session_duration_seconds = 2
      Leasehold.configuration.session_grace_seconds = 10
      def stop
        puts "stopped"
        Process.kill("STOP", Process.pid)
      end
      def write(held) = User.connection.execute("INSERT INTO guarded_writes (fence) VALUES (\#{held.fence})")
      held = Leasehold.locks.acquire("user.update", "7")
      begin
        #{script}
        puts "committed"
      rescue Leasehold::Error, ActiveRecord::ActiveRecordError => error
        puts error.class
      end
      exit!(0)
    RUBY
      .tap { |process| (@formers ||= []) << process.pid }
  end

  # Calls the guard for a lock, and returns its statement: the call, the fence and the slot.
  def guard_statement(held)
    statement = nil
    subscriber = ->(*, payload) { statement = payload if payload[:sql].include?("leasehold_guard(") }
    ActiveSupport::Notifications.subscribed(subscriber, "sql.active_record") { yield held }
    [statement[:sql][/leasehold_guard\(.*\z/], *statement[:binds].map(&:value).values_at(1, 3)]
  end

  it "hands the slot of a shared lock to a form of the function that an older guard lacks (K13)" do
    alone = Leasehold.locks.acquire("user.update", "7")
    slots = Array.new(2) { Leasehold.locks.acquire("user.update", "p", permits: 2) }

    expect(guard_statement(alone) { |held| User.transaction { held.guard! } })
      .to eq(["leasehold_guard($1, $2, make_interval(secs => $3))", alone.fence, nil])
    execute("DROP FUNCTION IF EXISTS leasehold_guard(text, bigint, interval, integer)")
    slots.each do |slot|
      statement = guard_statement(slot) do |held|
        expect { User.transaction { held.guard! } }.to raise_error(Leasehold::Error::Misconfigured, /no function `leasehold_guard` for shared locks/)
      end
      expect(statement).to eq(["leasehold_guard($1, $2, make_interval(secs => $3), $4)", slot.fence, slot.slot])
    end
    expect(slots.map(&:slot)).to eq([1, 2])
  end

  it "refuses the COMMIT of a holder that was stopped in its transaction, and the next holder writes" do
    former = holder("User.transaction { held.guard!; write(held); stop }")
    former.wait_for("stopped")
    later = Leasehold.locks.acquire("user.update", "7", wait: 60)
    written = Thread.new do
      User.connection_pool.with_connection do
        User.transaction { later.guard!; write(later.fence) }
      end
    end
    wait_for_a_waiting_guard
    Process.kill("CONT", former.pid)
    expect(former.finish.split.last).to eq("Leasehold::GuardSessionLost")
    written.join
    expect(writes).to eq([later.fence])
    expect { User.transaction { guard(later.fence - 1) } }.to raise_error(Leasehold::GuardFencePassed)
  end

  it "refuses a holder that was stopped before its transaction, after the next holder has written" do
    former = holder("stop; User.transaction { held.guard!; write(held) }")
    former.wait_for("stopped")
    later = Leasehold.locks.acquire("user.update", "7", wait: 60)
    User.transaction { later.guard!; write(later.fence) }
    Process.kill("CONT", former.pid)
    expect(former.finish.split.last).to eq("Leasehold::Error::SessionLost")
    expect(writes).to eq([later.fence])
  end

  it "refuses a fence that has passed" do
    User.transaction { guard(6); write(6) }
    expect { User.transaction { guard(5); write(5) } }
      .to raise_error(an_instance_of(Leasehold::GuardFencePassed).and(be_a(ActiveRecord::StatementInvalid)))
    User.transaction { guard(6); write(6) }
    User.transaction { guard(5, resource: "other/7"); write(5) }
    expect(writes).to eq([6, 6, 5])
  end

  it "refuses the COMMIT after the session is lost, with the claims of the transaction" do
    save = lambda do
      User.transaction do
        guard(6, 0.001)
        User.create!(username: "alice")
        outlive_the_session
      end
    end
    expect(&save).to raise_error(an_instance_of(Leasehold::GuardSessionLost))
    expect { User.transaction { guard(6, 0) } }.to raise_error(Leasehold::GuardSessionLost)
    reconcile
    expect([User.count, claimed(User, :username)]).to eq([0, []])
    User.transaction { guard(6); User.create!(username: "alice") }
    expect(claimed(User, :username)).to eq(["alice"])
  end

  it "leaves other errors as they are" do
    expect { User.transaction { guard(6); execute("SELECT 1/0") } }.to raise_error(an_instance_of(ActiveRecord::StatementInvalid), /division/)
    User.transaction { guard(6); execute("INSERT INTO guarded_writes VALUES (1, 6)") }
    expect { User.transaction { guard(6); execute("INSERT INTO guarded_writes VALUES (1, 6)") } }.to raise_error(ActiveRecord::RecordNotUnique)
  end

  it "needs a transaction and the guard" do
    expect { guard(6) }.to raise_error(Leasehold::Error::Misconfigured, /outside of a transaction/)
    execute("DROP FUNCTION leasehold_guard(text, bigint, interval)")
    expect { User.transaction { guard(6) } }.to raise_error(Leasehold::Error::Misconfigured, /leasehold:guard/)
  end

  it "calls the database with the key as a parameter only (K24)" do
    texts = []
    watch = ->(*, payload) { texts << payload[:sql] }
    held = Leasehold.locks.acquire("user.update", "secret")
    ActiveSupport::Notifications.subscribed(watch, "sql.active_record") { User.transaction { held.guard! } }
    expect(texts.grep(/leasehold_guard/).size).to eq(1)
    expect(texts.join).not_to include("secret")
  end
end
