# frozen_string_literal: true

require "rails_helper"
require "stringio"

RSpec.describe "reconciliation", :rails do
  before { stale_after(0.001) }
  after { stale_after(600) }

  # Begins a lease without a row, like a process that dies before COMMIT.
  def abandon(username)
    Leasehold.client.begin_update(creates: [Support::Claims.username(username)]).uuid
  end

  # Writes the row of a lease and leaves the lease outstanding, like a process that dies after COMMIT.
  def commit_locally(uuid, base = ActiveRecord::Base)
    table = Leasehold::LeaseTable.new(base.connection)
    table.insert(uuid, table.clock_and_session.first)
  end

  def reconcile_until_stale(**expected)
    Support::Waiting.wait_for("what was begun to be stale") { Leasehold::Reconciler.new.run >= expected }
  end

  it "searches all databases of the cell, whose clocks may differ, before it rolls a lease back" do
    uuid = abandon("alice")
    commit_locally(uuid, KeysRecord)
    reconcile_until_stale(committed: 1)

    expect(claimed(User, :username)).to eq(["alice"])
    expect(lease_rows + lease_rows(KeysRecord) + outstanding_leases).to be_empty
  end

  it "settles nothing if one of the databases cannot be read (R02)" do
    uuid = abandon("alice")
    commit_locally(uuid, KeysRecord)
    KeysRecord.connection.execute("ALTER TABLE cells_outstanding_leases RENAME TO away")
    published = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { published << payload }, "reconcile_failed.leasehold") do
      tables = Leasehold::LeaseTables.of_cell
      allow(tables).to receive(:guarded?).and_return(true)
      Leasehold::Reconciler.new(tables: tables).run
    end

    expect(published).not_to be_empty
    expect(outstanding_leases).to eq([uuid])
  ensure
    KeysRecord.connection.execute("ALTER TABLE away RENAME TO cells_outstanding_leases")
  end

  it "continues with the other leases if one cannot be settled (R05)" do
    uuids = %w[alice bob carol].map { |name| abandon(name) }
    uuids.each { |uuid| commit_locally(uuid) }
    allow(Leasehold.client).to receive(:commit_update).and_wrap_original do |commit, uuid, **options|
      uuid == uuids[1] ? raise(Leasehold::Error::Unavailable) : commit.call(uuid, **options)
    end
    reconcile_until_stale(failed: 1, committed: 0)

    expect(outstanding_leases).to eq([uuids[1]])
    expect(lease_rows).to eq([uuids[1]])
  end

  it "can run several times at once (R05)" do
    kept, dropped = 10.times.map { |number| abandon("name-#{number}") }.partition.with_index { |_, index| index.even? }
    kept.each { |uuid| commit_locally(uuid) }
    runs = 4.times.map do
      Thread.new { ActiveRecord::Base.connection_pool.with_connection { Leasehold::Reconciler.new.run } }
    end
    runs.each(&:join)
    Support::Waiting.wait_for("the rest") { Leasehold::Reconciler.new.run && outstanding_leases.empty? && lease_rows.empty? }

    expect(claimed(User, :username)).to eq([0, 2, 4, 6, 8].map { |number| "name-#{number}" })
    expect(dropped.size).to eq(5)
  end

  it "changes nothing in a dry run" do
    uuid = abandon("alice")
    output = StringIO.new
    reconcile_by_hand = lambda do
      Support::Waiting.wait_for("the lease to be stale") do
        Leasehold::Console.new(output: output, dry_run: true).reconcile
        output.string.include?("would settle #{uuid}: rolled_back")
      end
    end
    expect(&reconcile_by_hand).to output(/\Awarning: /).to_stderr

    expect(output.string).to match(/^  failed +0$/).and match(/^  planned +1$/)
    expect(outstanding_leases).to eq([uuid])
  end

  it "reports if the databases do not refuse late COMMITs (R04)" do
    expect(reported(stale_after_seconds: 301)).to eq([true, "INFO"])
    expect(reported(stale_after_seconds: 300)).to eq([false, "WARN"])
    expect { by_hand }.to output(/\Awarning: .* fewer seconds than `stale_after_seconds`$/).to_stderr
    ActiveRecord::Base.connection.execute("ALTER TABLE cells_outstanding_leases DISABLE TRIGGER USER")
    expect(reported(stale_after_seconds: 301)).to eq([false, "WARN"])
  ensure
    ActiveRecord::Base.connection.execute("ALTER TABLE cells_outstanding_leases ENABLE TRIGGER USER")
  end

  # @return [Array] the `guarded` flag that a run publishes, and the level at which it is logged
  def reported(stale_after_seconds:)
    stale_after(stale_after_seconds)
    output = StringIO.new
    allow(Leasehold.configuration).to receive(:logger).and_return(Logger.new(output, formatter: ->(level, *, message) { "#{level} #{message}\n" }))
    Leasehold::ReconcileJob.perform_now
    level, line = output.string.lines.grep(/leasehold.reconcile"/).first.split(" ", 2)
    [JSON.parse(line).fetch("guarded"), level]
  end

  def by_hand
    Leasehold::Console.new(output: StringIO.new).reconcile
  end
end
