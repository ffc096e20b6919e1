# frozen_string_literal: true

require "rails_helper"

# Verification's updates while others change the rows, or while it is killed.
RSpec.describe "updates of verification", :rails do
  let(:cell) { Support::Cell[1] }
  # A connection that changes rows without callbacks and claims.
  let(:other) { PG.connect(Support::PostgresCluster.instance.url(cell.database)) }

  before do
    Leasehold.configuration.recent_within_seconds = 0.001
    insert_users(%w[alice bob carol])
  end

  after do
    other.close
    Leasehold.configuration.recent_within_seconds = 3600
  end

  def insert_users(names)
    names.each.with_index(1) do |name, id|
      other.exec("INSERT INTO users (id, username, created_at, updated_at) VALUES (#{id}, '#{name}', now() - interval '1 day', " \
                 "now() - interval '1 day')")
    end
  end

  def verify
    changed = Leasehold.client.list_leases.server_time
    Support::Waiting.wait_for("the server's clock") { Leasehold.client.list_leases.server_time > changed + 0.01 }
    Leasehold::Verifier.new(User).run
  end

  # Calls the block before or after the first call of this name.
  def once(call, edge = :finish, &block)
    done = false
    watch = Object.new
    %i[start finish].each { |name| watch.define_singleton_method(name) { |*| } }
    watch.define_singleton_method(edge) { |*| (done = true) && block.call unless done }
    ActiveSupport::Notifications.subscribe("#{call}.leasehold", watch)
  end

  def names
    claimed(User, :username)
  end

  {
    "renamed" => [->(*) { User.find(2).update!(username: "robert") }, %w[alice carol robert]],
    "destroyed" => [->(*) { User.find(2).destroy! }, %w[alice carol]],
    "renamed past the claims" => [->(*) { User.where(id: 2).update_all(username: "robert", updated_at: 1.day.ago) }, %w[alice carol]]
  }.each do |how, (change, expected)|
    it "claim nothing for a row that was #{how} since it was read (V03)" do
      # The row is changed in another thread, because the thread of the call has no database connection.
      once(:list_records) { once(:begin_update, :start) { Thread.new { User.connection_pool.with_connection(&change) }.join } }
      report = verify

      expect(report).to include(finished: true)
      expect(report[:changed] + report[:recent]).to be > 0
      expect(names).to match_array(expected)
      expect(outstanding_leases + lease_rows).to be_empty
    end
  end

  it "claim nothing for a row that an open transaction is writing, and report it" do
    other.exec("BEGIN; UPDATE users SET username = 'robert', updated_at = now() - interval '1 day' WHERE id = 2")
    expect(verify).to include(finished: true, recent: 2)
    expect(names).to match_array(%w[alice carol])

    other.exec("COMMIT")
    expect(verify).to include(finished: true, recent: 0)
    expect(names).to match_array(%w[alice carol robert])
  end

  it "claim for a row that another transaction has only locked for reading, or tried in vain to write" do
    other.exec("BEGIN; SELECT * FROM users WHERE id = 1 FOR KEY SHARE; SAVEPOINT s; UPDATE users SET username = 'x' WHERE id = 2")
    other.exec("ROLLBACK TO s")
    expect(verify).to include(finished: true, recent: 0)
    expect(names).to match_array(%w[alice bob carol])
  end

  it "let a concurrent save of the row fail as busy" do
    refused = nil
    once(:begin_update) do
      user = User.find(2)
      refused = user.errors.details if user.update(username: "robert") == false
    end
    verify

    expect(refused.values.flatten.map { |detail| detail[:error] }).to include(:busy)
    expect(names).to match_array(%w[alice bob carol])
  end

  def reachable?
    Leasehold.client.warm_up
    true
  rescue Leasehold::Error::Unavailable
    false
  end

  def killed(stop)
    Support::CellProcess.killed(cell, server.address, "Leasehold.configuration.recent_within_seconds = 0.001; #{stop}; " \
                                                      "Leasehold::Verifier.new(User).run")
  end

  it "are rolled back if the process dies before it reads the rows again, and other runs report held claims" do
    killed("stop_after(:begin_update)")
    expect(lease_rows).to be_empty
    expect(verify).to include(records_held: 6, missing: 0)

    reconcile
    expect(names).to be_empty
    expect(verify).to include(created: 6)
  end

  it "are committed if the process dies before it commits the lease" do
    killed("stop_before(:commit_update)")
    expect(lease_rows).to eq(outstanding_leases)
    expect(lease_rows.size).to eq(1)

    reconcile
    expect(names).to match_array(%w[alice bob carol])
    expect(verify).to include(missing: 0, extra: 0, records_held: 0)
  end

  it "are committed if the server is stopped at that moment" do
    once(:commit_update, :start) { server.kill }
    expect(Leasehold::Verifier.new(User).run).to include(created: 6)

    server.start
    Support::Waiting.wait_for("the server") { reachable? }
    reconcile
    expect(names).to match_array(%w[alice bob carol])
  end

  it "are rolled back if the run is interrupted" do
    once(:begin_update) { Thread.main.raise(Interrupt) }
    expect { verify }.to raise_error(Interrupt)

    expect(outstanding_leases + lease_rows + names).to be_empty
  end

  # Verifies while the server's answers are held back, from the first begin on, until the block releases them.
  #
  # @return [Hash{Symbol => Object}] the report
  def verify_without_answers(event)
    # The run has lists to read before the begin, each in two tries.
    Leasehold.configuration.verification_deadline_seconds = 4
    Support::TcpProxy.run(server.address) do |proxy|
      cell.configure(proxy.address)
      Leasehold.client.warm_up
      subscribers = [once(:begin_update, :start) { proxy.hold_answers }, once(event) { proxy.release_answers }]
      Leasehold::Verifier.new(User).run
    ensure
      subscribers&.each { |subscriber| ActiveSupport::Notifications.unsubscribe(subscriber) }
      cell.configure(server.address)
    end
  ensure
    Leasehold.configuration.verification_deadline_seconds = 30
  end

  it "are rolled back at once if their begin gets no answer, so that the next run corrects (B09)" do
    expect(verify_without_answers(:begin_update)).to include(finished: true, failed: 6, created: 0)

    expect(outstanding_leases + lease_rows + names).to be_empty
    expect(verify).to include(created: 6, failed: 0)
  end

  it "leave a lease to reconciliation if neither the begin nor its rollback gets an answer" do
    unsettled = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { unsettled << payload }, "unsettled.leasehold") do
      expect(verify_without_answers(:unsettled)).to include(finished: true, failed: 6)
    end

    expect(unsettled).to match([include(lease: nil, wanted: :rollback, error: "Leasehold::Error::DeadlineExceeded")])
    expect(outstanding_leases.size).to eq(1)
    reconcile
    expect(outstanding_leases + lease_rows + names).to be_empty
  end

  # A call with the short deadline fails before the interrupted run stops waiting for it.
  [0.2, 30].each do |deadline_seconds|
    it "are rolled back if the run is interrupted while a begin has no answer, with a deadline of #{deadline_seconds} s" do
      Support::TcpProxy.run(server.address) do |proxy|
        cell.configure(proxy.address)
        Leasehold.client.warm_up
        allow(Leasehold.client).to receive(:begin_encoded).and_wrap_original do |original, step, **options|
          original.call(step, **options, deadline_seconds: deadline_seconds)
        end
        once(:begin_update, :start) { proxy.hold_answers && Thread.main.raise(Interrupt) }
        once(:begin_update) { proxy.release_answers }
        expect { Leasehold::Verifier.new(User).run }.to raise_error(Interrupt)
      ensure
        cell.configure(server.address)
      end

      expect(outstanding_leases + lease_rows + names).to be_empty
    end
  end

  it "fail if their row is written too late (R04)" do
    late = Module.new { def clock_and_session = ["2001-01-01", *super.drop(1)] }
    table = Class.new(Leasehold::LeaseTable) { prepend late }
    stub_const("Leasehold::LeaseTable", table)
    expect(verify).to include(failed: 6)

    expect(outstanding_leases + lease_rows).to be_empty
    expect(names).to be_empty
  end
end
