# frozen_string_literal: true

require "rails_helper"

# The failure points of the protocol, with real processes. After each, the jobs run and both sides
# agree.
RSpec.describe "failure points", :rails do
  let(:cell) { Support::Cell[1] }

  def expect_same_on_both_sides(usernames)
    expect(User.order(:username).pluck(:username)).to eq(usernames)
    expect(claimed(User, :username)).to eq(usernames)
    expect(records(User, :username).map(&:status).uniq - [:ACTIVE]).to be_empty
    expect(outstanding_leases + lease_rows).to be_empty
  end

  def with_trigger(table, event, body)
    connection = ActiveRecord::Base.connection
    connection.execute("CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN #{body} END $$")
    connection.execute("CREATE CONSTRAINT TRIGGER fails AFTER #{event} ON #{table} DEFERRABLE INITIALLY DEFERRED " \
                       "FOR EACH ROW EXECUTE FUNCTION fails()")
    yield
  ensure
    connection.execute("DROP TRIGGER fails ON #{table}")
    connection.execute("DROP FUNCTION fails()")
  end

  it "1: an invalid record takes no lease" do
    seen = calls { expect(User.new(username: "").save).to be(false) }

    expect(seen).to be_empty
    expect_same_on_both_sides([])
  end

  it "2A: another cell's process owns the name" do
    printed = Support::CellProcess.run(Support::Cell[2], server.address, "puts User.create!(username: 'alice').username")

    expect(printed).to eq("alice\n")
    expect(User.new(username: "alice").tap(&:save).errors.full_messages).to eq(["Username has already been taken"])
    expect_same_on_both_sides([])
  end

  it "2B: the server stops and restarts" do
    server.kill
    user = User.new(username: "alice")
    expect(user.save).to be(false)
    expect(user.errors.details).to eq(base: [{ error: :claims_unavailable }])

    server.start
    Support::Waiting.wait_for("the server") { user.save }
    reconcile
    expect_same_on_both_sides(["alice"])
  end

  it "2B: the answer to a begin is lost, and the second try gets the same lease" do
    Support::TcpProxy.run(server.address) do |proxy|
      Support::Cell[1].configure(proxy.address)
      Leasehold.client.warm_up
      proxy.cut_next_answer {}
      expect(User.new(username: "alice").save).to be(true)
    end
    Support::Cell[1].configure(server.address)

    expect_same_on_both_sides(["alice"])
  end

  it "2B: no answer comes in time, and a retry does not meet the first try's lease (B09)" do
    Support::TcpProxy.run(server.address) do |proxy|
      cell.configure(proxy.address)
      Leasehold.client.warm_up
      proxy.hold_answers
      late = ActiveSupport::Notifications.subscribe("begin_update.leasehold") do |*, payload|
        proxy.release_answers if payload[:code] != "OK"
      end
      user = User.new(username: "alice")
      expect(with_short_deadline { user.save }).to be(false)
      expect(user.errors.details).to eq(base: [{ error: :claims_unavailable }])
      expect(user.save).to be(true)
    ensure
      ActiveSupport::Notifications.unsubscribe(late)
    end
    cell.configure(server.address)

    expect_same_on_both_sides(["alice"])
  end

  it "2B: no answer comes in time, and an open circuit does not prevent the rollback of the lease" do
    Leasehold.configuration.circuit_failures = 1
    Support::TcpProxy.run(server.address) do |proxy|
      cell.configure(proxy.address)
      Leasehold.client.warm_up
      proxy.hold_answers
      late = ActiveSupport::Notifications.subscribe("begin_update.leasehold") do |*, payload|
        proxy.release_answers if payload[:code] == "DEADLINE_EXCEEDED"
      end
      expect(with_short_deadline { User.new(username: "alice").save }).to be(false)
      expect(outstanding_leases).to be_empty
      expect { Leasehold.client.begin_update(creates: [Support::Claims.username("bob")]) }
        .to raise_error(Leasehold::Error::CircuitOpen)
    ensure
      ActiveSupport::Notifications.unsubscribe(late)
      Leasehold.configuration.circuit_failures = 10
    end
    cell.configure(server.address)

    expect_same_on_both_sides([])
  end

  it "3A: the database refuses a statement before the lease: the server is not called" do
    user = User.create!(username: "alice", emails: [Email.new(email: "a@example.com")])
    seen = calls do
      expect { user.emails.create!(email: "a@example.com") }.to raise_error(ActiveRecord::RecordNotUnique)
    end

    expect(seen).to be_empty
    expect_same_on_both_sides(["alice"])
  end

  it "3A: the database refuses the COMMIT: the lease is rolled back at once" do
    seen = with_trigger("users", "INSERT", "RAISE unique_violation;") do
      calls { expect { User.create!(username: "alice") }.to raise_error(ActiveRecord::RecordNotUnique) }
    end

    expect(seen.map { |call| call[:call] }).to eq(%i[begin_update rollback_update])
    expect_same_on_both_sides([])
  end

  it "3B: the process dies between the begin and its COMMIT" do
    Support::CellProcess.killed(cell, server.address, "stop_after(:begin_update); User.create!(username: 'alice')")
    expect(outstanding_leases.size).to eq(1)
    expect(lease_rows).to be_empty

    reconcile
    expect_same_on_both_sides([])
  end

  it "3B: a fresh lease is left alone (R01)" do
    Support::CellProcess.killed(cell, server.address, "stop_after(:begin_update); User.create!(username: 'alice')")

    expect(Leasehold::ReconcileJob.perform_now).to include(rolled_back: 0, leases_seen: 1)
    expect(outstanding_leases.size).to eq(1)
  end

  it "4A: the process dies between its COMMIT and the commit of the lease" do
    Support::CellProcess.killed(cell, server.address, "stop_before(:commit_update); User.create!(username: 'alice')")
    expect(lease_rows).to eq(outstanding_leases)
    expect(lease_rows.size).to eq(1)

    reconcile
    expect_same_on_both_sides(["alice"])
  end

  it "4B: the server is stopped when the lease is to be committed" do
    stop = ActiveSupport::Notifications.subscribe("begin_update.leasehold") { server.kill }
    expect(User.new(username: "alice").save).to be(true)
    ActiveSupport::Notifications.unsubscribe(stop)
    server.start
    Leasehold.reset_client

    expect(lease_rows).to eq(outstanding_leases)
    reconcile
    expect_same_on_both_sides(["alice"])
  end

  it "5A: the local row cannot be deleted" do
    with_trigger("cells_outstanding_leases", "DELETE", "RAISE EXCEPTION 'no';") do
      expect(User.new(username: "alice").save).to be(true)
      expect(lease_rows.size).to eq(1)
      expect(outstanding_leases).to be_empty
    end

    reconcile
    expect_same_on_both_sides(["alice"])
  end

  describe "a COMMIT of unknown outcome (R02)" do
    # Connects to the database through a proxy that loses the answer to the next COMMIT.
    def losing_the_answer_to_commit
      Support::TcpProxy.run("127.0.0.1:#{Support::PostgresCluster.instance.port}") do |proxy|
        url = "postgres://leasehold@#{proxy.address}/#{cell.database}"
        ActiveRecord::Base.establish_connection(url)
        cut = ActiveSupport::Notifications.subscribe("begin_update.leasehold") { cut_at_commit(proxy) }
        yield
      ensure
        ActiveSupport::Notifications.unsubscribe(cut)
      end
      become(1)
    end

    def cut_at_commit(proxy)
      watch = Object.new
      watch.define_singleton_method(:start) { |_name, _id, payload| proxy.cut_next_answer {} if payload[:sql] == "COMMIT" }
      watch.define_singleton_method(:finish) { |*| nil }
      @watches = [ActiveSupport::Notifications.subscribe("sql.active_record", watch)]
    end

    after { @watches&.each { |watch| ActiveSupport::Notifications.unsubscribe(watch) } }

    it "is published as unsettled, and leaves marked records in place" do
      author = stub_const("Author", Class.new(User) { accepts_nested_attributes_for :emails, allow_destroy: true })
      user = author.create!(username: "bob", emails: [Email.new(email: "a@example.com")])
      marked = [{ id: user.emails.first.id, _destroy: "1" }]
      published = []
      ActiveSupport::Notifications.subscribed(->(*, payload) { published << payload }, "unsettled.leasehold") do
        losing_the_answer_to_commit do
          expect { user.update!(username: "alice", emails_attributes: marked) }.to raise_error(ActiveRecord::ActiveRecordError)
        end
      end

      expect(published).to contain_exactly(include(lease: outstanding_leases.first, wanted: :rollback))
      expect(user.emails.to_a.map(&:marked_for_destruction?)).to eq([true])
    end

    it "is not taken for a rollback" do
      seen = calls do
        losing_the_answer_to_commit { expect { User.create!(username: "alice") }.to raise_error(ActiveRecord::ActiveRecordError) }
      end

      expect(seen.map { |call| call[:call] }).to eq([:begin_update])
      expect(lease_rows).to eq(outstanding_leases)
      reconcile
      expect_same_on_both_sides(["alice"])
    end
  end

  describe "a COMMIT that comes too late (R04)" do
    # Runs the block with a commit guard of `seconds`, and delays each COMMIT for twice that time.
    def with_late_commit(seconds)
      connection = ActiveRecord::Base.connection
      replace_guard(connection, seconds)
      waiting = ActiveSupport::Notifications.subscribe("begin_update.leasehold") do
        connection.execute("SELECT pg_sleep(#{seconds * 2})")
      end
      yield
    ensure
      ActiveSupport::Notifications.unsubscribe(waiting)
      replace_guard(connection, Leasehold.configuration.commit_within_seconds)
    end

    def replace_guard(connection, seconds)
      guard = Leasehold::LeaseTable::GUARD
      connection.execute("DROP TRIGGER #{guard} ON cells_outstanding_leases")
      connection.execute("CREATE CONSTRAINT TRIGGER #{guard} AFTER INSERT ON cells_outstanding_leases " \
                         "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION #{guard}(#{seconds})")
    end

    it "is refused by the database, and the lease is rolled back" do
      seen = with_late_commit(0.1) do
        calls { expect { User.create!(username: "alice") }.to raise_error(ActiveRecord::SerializationFailure, /too late/) }
      end

      expect(seen.map { |call| call[:call] }).to eq(%i[begin_update rollback_update])
      expect_same_on_both_sides([])
    end

    it "is judged by the age of the lease, not of the transaction" do
      connection = ActiveRecord::Base.connection
      # A pause of some seconds between the begin and the COMMIT makes no COMMIT late.
      replace_guard(connection, 10)
      User.transaction do
        User.create!(username: "alice")
        connection.execute("SELECT pg_sleep(11)")
      end

      expect_same_on_both_sides(["alice"])
    ensure
      replace_guard(connection, Leasehold.configuration.commit_within_seconds)
    end
  end

  it "a lease that was rolled back although its transaction is committed is published as lost (R01)" do
    Support::CellProcess.killed(cell, server.address, "stop_before(:commit_update); User.create!(username: 'alice')")
    Leasehold.client.rollback_update(lease_rows.first)
    lost = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { lost << payload[:lease] }, "lost.leasehold") { reconcile }

    expect(lost.size).to eq(1)
    expect(outstanding_leases + lease_rows).to be_empty
  end
end
