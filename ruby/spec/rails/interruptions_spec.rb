# frozen_string_literal: true

require "rails_helper"

# Interrupts a thread that waits for the answer to a begin, within its transaction.
RSpec.describe "a save that is interrupted while the server hangs", :rails do
  let!(:user) { User.create!(username: "alice") }

  # Subscribes to the begin's event. When the begin starts, records how many bytes were sent before it; when it
  # ends, releases the held answers.
  def watch(proxy)
    sent = @sent_before = []
    Object.new.tap do |watch|
      watch.define_singleton_method(:finish) { |*| proxy.release_answers }
      watch.define_singleton_method(:start) { |*| sent.push(proxy.client_bytes) }
    end
  end

  # Runs the block while answers are held back, until the first begin has ended.
  def hanging
    Support::TcpProxy.run(server.address) do |proxy|
      Support::Cell[1].configure(proxy.address)
      Leasehold.client.warm_up
      proxy.hold_answers
      late = ActiveSupport::Notifications.subscribe("begin_update.leasehold", watch(proxy))
      yield proxy
    ensure
      ActiveSupport::Notifications.unsubscribe(late)
      Support::Cell[1].configure(server.address)
    end
  end

  # Renames a user in a thread, and interrupts the thread while its begin is in progress.
  #
  # @return [Array] the state of the thread's connection afterwards
  def renaming_in_thread(proxy)
    left = nil
    thread = Thread.new { over_a_connection { |connection| rename_over(connection) { |state| left = state } } }
    thread.report_on_exception = false
    wait_for("a begin") { @sent_before.any? && proxy.client_bytes > @sent_before.first }
    yield thread
    left
  end

  # Runs the block in a transaction that is never committed, as transactional tests do.
  def over_a_connection(&block)
    User.connection_pool.with_connection do |connection|
      next block.call(connection) unless Leasehold.configuration.transactional_tests

      connection.begin_transaction(joinable: false, _lazy: false)
      block.call(connection)
    ensure
      connection.rollback_transaction if Leasehold.configuration.transactional_tests
    end
  end

  def rename_over(connection)
    User.find(user.id).update!(username: "bob")
  ensure
    yield state(connection)
  end

  def state(connection)
    [connection.open_transactions, connection.raw_connection.transaction_status]
  end

  it "is rolled back after `Timeout.timeout`, which throws" do
    hanging do
      expect { Timeout.timeout(5) { user.update!(username: "bob") } }.to raise_error(Timeout::Error)
      expect(state(User.connection)).to eq([0, PG::PQTRANS_IDLE])
    end

    expect_only_alice
    User.create!(username: "bob")
    expect(claimed(User, :username)).to eq(%w[alice bob])
  end

  it "is rolled back after an exception that another thread raises in it" do
    left = hanging do |proxy|
      renaming_in_thread(proxy) do |thread|
        thread.raise(Interrupt)
        expect { thread.join(Support::Waiting::DEADLINE_SECONDS) }.to raise_error(Interrupt)
      end
    end

    expect(left).to eq([0, PG::PQTRANS_IDLE])
    expect_only_alice
  end

  it "is rolled back if its thread is killed, which ends without an error" do
    left = hanging do |proxy|
      renaming_in_thread(proxy) { |thread| expect(thread.kill.join(Support::Waiting::DEADLINE_SECONDS)).to be(thread) }
    end

    expect(left).to eq([0, PG::PQTRANS_IDLE])
    expect_only_alice
  end

  it "leaves a transactional test's transaction open if its thread is killed" do
    Leasehold.configuration.transactional_tests = true
    left = hanging { |proxy| renaming_in_thread(proxy) { |thread| thread.kill.join(Support::Waiting::DEADLINE_SECONDS) } }

    expect(left).to eq([1, PG::PQTRANS_INTRANS])
    expect_only_alice
  end
end

# Interrupts a thread that waits for the answer to a commit, after its transaction is committed.
RSpec.describe "a save that is interrupted while its lease is committed", :rails do
  # Saves while answers to commits are held back, and interrupts the save.
  #
  # @return [Array<Hash>] the `unsettled` events
  def saving_without_answer
    unsettled = []
    Support::TcpProxy.run(server.address) do |proxy|
      Support::Cell[1].configure(proxy.address)
      Leasehold.client.warm_up
      started = @commits_started = Queue.new
      hold = Object.new.tap { |subscriber| subscriber.define_singleton_method(:start) { |*| started << proxy.hold_answers } }
      hold.define_singleton_method(:finish) { |*| proxy.release_answers }
      held = ActiveSupport::Notifications.subscribe("commit_update.leasehold", hold)
      ActiveSupport::Notifications.subscribed(->(*, payload) { unsettled << payload }, "unsettled.leasehold") { yield }
    ensure
      ActiveSupport::Notifications.unsubscribe(held)
      Support::Cell[1].configure(server.address)
    end
    unsettled
  end

  it "is saved, and publishes its unsettled lease, if interrupted by throw, raise or kill" do
    interruptions = {
      # The row is written within this time even if the machine pauses for some seconds.
      "a" => -> { expect { Timeout.timeout(8) { User.create!(username: "a") } }.to raise_error(Timeout::Error) },
      "b" => -> { expect { in_thread("b") { |thread| thread.raise(Interrupt) }.join }.to raise_error(Interrupt) },
      "c" => -> { in_thread("c", &:kill).join }
    }
    interruptions.each do |name, interrupted|
      unsettled = saving_without_answer(&interrupted)

      expect(unsettled.size).to eq(1), "#{name}: #{unsettled}"
      expect(unsettled.first).to include(wanted: :commit, lease: lease_rows.last)
      expect(User.exists?(username: name)).to be(true)
    end
    expect(lease_rows.size).to eq(3)
  end

  # Saves in a thread, and calls the block with the thread once the row is committed and the lease's commit has begun.
  def in_thread(name)
    thread = Thread.new { User.connection_pool.with_connection { User.create!(username: name) } }
    thread.report_on_exception = false
    wait_for("the row") { User.uncached { User.exists?(username: name) } }
    wait_for("the commit of the lease") { !@commits_started.empty? }
    wait_for("the commit") { thread.status == "sleep" }
    yield thread
    thread
  end
end

# Interrupts a thread while the database executes a statement, before any begin.
RSpec.describe "a save that is interrupted while its row is written", :rails do
  # Slows down every statement that writes a user.
  before do
    execute <<~SQL
      CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(6); RETURN COALESCE(NEW, OLD); END';
    SQL
  end

  after { execute "DROP FUNCTION take_time CASCADE" }

  def execute(sql)
    User.connection.execute(sql)
  end

  def slowly
    execute "CREATE TRIGGER take_time BEFORE INSERT OR UPDATE OR DELETE ON users FOR EACH ROW EXECUTE FUNCTION take_time()"
    expect { Timeout.timeout(0.3) { yield } }.to raise_error(Timeout::Error)
    expect(User.connection.open_transactions).to eq(0)
  ensure
    execute "DROP TRIGGER take_time ON users"
  end

  def expect_agreement(*names)
    expect(User.pluck(:username)).to match_array(names)
    expect(claimed(User, :username)).to match_array(names)
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "is rolled back, for INSERT, UPDATE and DELETE" do
    slowly { User.create!(username: "alice") }
    expect_agreement

    user = User.create!(username: "alice")
    slowly { User.find(user.id).update!(username: "bob") }
    slowly { User.find(user.id).destroy! }
    expect_agreement("alice")
  end

  it "causes the COMMIT of the transaction around it to be refused" do
    rescued = lambda do
      User.transaction do
        User.create!(username: "carol")
        slowly_within
      end
    end
    execute "CREATE TRIGGER take_time BEFORE INSERT ON users FOR EACH ROW WHEN (NEW.username = 'slow') EXECUTE FUNCTION take_time()"
    expect(&rescued).to raise_error(Timeout::Error, /must be rolled back/)
    expect_agreement
  end

  # Writes a row in a transaction. Another thread raises the error in this one during the statement; the
  # transaction's block rescues the error and continues.
  def interrupted_by(error)
    main = Thread.current
    User.transaction do
      User.create!(username: "carol")
      Thread.new do
        wait_for("the statement") { Support::Cell[1].query("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'").any? }
        main.raise(error)
      end
      yield
    rescue Exception => raised # rubocop:disable Lint/RescueException
      expect([raised, raised.cause]).to include(error)
    end
  end

  # A timeout raises its own error from the gem timeout 0.4 on. ActiveRecord wraps an IOError.
  {
    "a timeout" => Class.new(Exception), "a RuntimeError" => RuntimeError, "an IOError" => IOError # rubocop:disable Lint/InheritException
  }.each do |what, error|
    it "causes the COMMIT to be refused after #{what} that is rescued, for INSERT, UPDATE and DELETE" do
      user = User.create!(username: "alice")
      execute "CREATE TRIGGER take_time BEFORE INSERT OR UPDATE OR DELETE ON users FOR EACH ROW " \
              "WHEN (COALESCE(current_setting('leasehold.slow', true), '') <> '') EXECUTE FUNCTION take_time()"
      statements = [-> { User.create!(username: "slow") }, -> { User.find(user.id).update!(username: "slow") }, -> { User.find(user.id).destroy! }]
      statements.each do |statement|
        refused = -> { interrupted_by(error.new("over the thread")) { slow_locally(&statement) } }
        expect(&refused).to raise_error(Timeout::Error, /must be rolled back/)
      end

      expect_agreement("alice")
    end
  end

  def slow_locally
    execute "SET LOCAL leasehold.slow = 'yes'"
    yield
  end

  def slowly_within
    Timeout.timeout(0.3) { User.create!(username: "slow") }
  rescue Timeout::Error
    # The example checks that the row and its claims are unchanged.
  end
end

# Interrupts a callback, after which Rails alone decides if the transaction commits.
RSpec.describe "a save that is interrupted in a callback", :rails do
  interruptions = { throw: -> { throw :out }, raise: -> { raise Interrupt }, kill: -> { Thread.current.kill } }

  def creating(moment, name, &interruption)
    model = stub_const("InterruptedUser", Class.new(User) { public_send(moment, &interruption) })
    thread = Thread.new do
      User.connection_pool.with_connection { catch(:out) { model.create!(username: name) } }
    rescue Interrupt
      # The save has ended.
    end
    expect(thread.join(Support::Waiting::DEADLINE_SECONDS)).to be(thread)
  end

  %i[before_create after_create after_save before_commit after_commit].each do |moment|
    it "has claims for exactly the rows that Rails commits, if the callback is #{moment}" do
      interruptions.each { |how, interruption| creating(moment, how.to_s, &interruption) }

      expect(claimed(User, :username)).to match_array(User.pluck(:username))
      expect(outstanding_leases + lease_rows).to be_empty
    end
  end

  it "is not begun if it is interrupted before its row is written" do
    interruptions.each { |how, interruption| creating(:before_create, how.to_s, &interruption) }

    expect(User.count).to eq(0)
  end
end

RSpec.describe "a lease begun before BEGIN", :rails do
  it "is rolled back if the save is interrupted before BEGIN" do
    allow(User.connection).to receive(:transaction).and_raise(Interrupt)
    expect { Leasehold.claiming! { |claims| claims.save(User.new(username: "alice")) } }.to raise_error(Interrupt)

    expect(outstanding_leases + lease_rows).to be_empty
  end
end

# Errors that a transaction's block rescues, so that the transaction goes on.
RSpec.describe "a save whose error is rescued", :rails do
  it "causes the COMMIT to be refused if its row is written and its claims are not known" do
    model = stub_const("FailingUser", Class.new(User) do
      attr_accessor :failing

      cells_claims_attribute :username, type: :USERNAMES, feature_flag: :users, if: ->(user) { user.failing ? raise(ArgumentError) : true }
      skip_callback :validate, :before, :cells_claims_validate_values
    end)
    user = User.create!(username: "alice")
    changed = model.find(user.id).tap { |instance| instance.assign_attributes(username: "bob", failing: true) }
    [model.new(username: "bob", failing: true), changed].each do |record|
      rescued = -> { User.transaction { expect { record.save!(validate: false) }.to raise_error(ArgumentError) } }
      expect(&rescued).to raise_error(Timeout::Error, /must be rolled back/)
    end

    expect(User.pluck(:username)).to eq(["alice"])
    expect(claimed(User, :username)).to eq(["alice"])
  end

  it "is no reason to refuse the COMMIT if no row was written" do
    stopping = Class.new(User) { before_create { raise "stop" } }
    User.transaction do
      User.create!(username: "carol")
      expect { stopping.create!(username: "bob") }.to raise_error("stop")
      { 2**70 => ActiveModel::RangeError, 1 => ArgumentError }.each do |user_id, error|
        expect { Email.new(email: "a\0", user_id: user_id).save!(validate: false) }.to raise_error(error)
      end
    end

    expect(claimed(User, :username)).to eq(["carol"])
  end
end
