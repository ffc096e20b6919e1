# frozen_string_literal: true

require "rails_helper"

# The files in `earlier_version` are those of an application with the gem's first version: its migration, its
# `db/structure.sql`, a checkpoint, and jobs that it has enqueued. Both versions can share a database during a deployment.
RSpec.describe "an application of an earlier version", :rails do
  files = File.expand_path("../earlier_version", __dir__)

  let(:earlier_migration) do
    require File.join(files, "create_cells_outstanding_leases")
    EarlierCreateCellsOutstandingLeases
  end
  let(:structure) { File.read(File.join(files, "structure.sql")) }
  let(:checkpoint) { File.read(File.join(files, "checkpoint.json")) }
  let(:jobs) { JSON.parse(File.read(File.join(files, "jobs.json"))) }

  def connection
    ActiveRecord::Base.connection
  end

  before { Leasehold.configuration.recent_within_seconds = 0.001 }

  after do
    Leasehold.configuration.recent_within_seconds = 3600
    stale_after(600)
  end

  # Replaces the tables of this version by those that the block makes.
  def replace_tables
    migrate(RailsApp::Tables.lease_migration, :down)
    yield
  end

  def restore_tables
    connection.execute("DROP TABLE cells_outstanding_leases, cells_claims_verifications")
    connection.execute("DROP FUNCTION cells_outstanding_leases_refuse_late_commit")
    migrate(RailsApp::Tables.lease_migration, :up)
  end

  def migrate(migration, direction)
    ActiveRecord::Migration.suppress_messages { migration.new.exec_migration(connection, direction) }
  end

  # @return [Array<Array>] the columns, indexes, constraints, triggers and functions of the gem's tables
  def schema
    tables = "('cells_outstanding_leases'::regclass, 'cells_claims_verifications'::regclass)"
    connection.select_rows(<<~SQL)
      SELECT attrelid::regclass::text, attname::text, format_type(atttypid, atttypmod) || ' ' || attnotnull FROM pg_attribute
      WHERE attnum > 0 AND NOT attisdropped AND attrelid IN #{tables}
      UNION ALL SELECT indrelid::regclass::text, indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
      WHERE indrelid IN #{tables}
      UNION ALL SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN #{tables}
      UNION ALL SELECT tgrelid::regclass::text, tgname::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid IN #{tables}
      UNION ALL SELECT '', proname::text, regexp_replace(prosrc, '\\s+', ' ', 'g') FROM pg_proc WHERE proname LIKE 'cells_%'
      ORDER BY 1, 2, 3
    SQL
  end

  # Waits until the claims and leases that exist are older than a millisecond.
  def let_it_settle
    changed = Leasehold.client.list_leases.server_time
    Support::Waiting.wait_for("the server's clock") { Leasehold.client.list_leases.server_time > changed + 0.01 }
  end

  def run_job(name)
    ActiveJob::Base.execute(jobs.fetch(name))
  end

  it "has the tables that this version makes, from its structure or its migration" do
    present = schema
    [-> { connection.execute(structure) }, -> { migrate(earlier_migration, :up) }].each do |make|
      replace_tables(&make)
      expect(schema).to eq(present)
    ensure
      restore_tables
    end
  end

  it "can revert its migration" do
    replace_tables { migrate(earlier_migration, :up) }
    migrate(earlier_migration, :down)
    remnants = "SELECT relname FROM pg_class WHERE relname LIKE 'cells_%' UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE 'cells_%'"

    expect(connection.select_values(remnants)).to be_empty
  ensure
    migrate(RailsApp::Tables.lease_migration, :up)
  end

  describe "in its tables" do
    before { replace_tables { connection.execute(structure) } }
    after { restore_tables }

    it "saves, and settles the leases" do
      user = User.create!(username: "alice")
      user.update!(username: "bob")

      expect(claimed(User, :username)).to eq(["bob"])
      user.destroy!
      expect(claimed(User, :username) + outstanding_leases + lease_rows).to be_empty
    end

    it "keeps the commit guard, which refuses a late COMMIT (R04)" do
      late = lambda do
        connection.execute("INSERT INTO cells_outstanding_leases VALUES (gen_random_uuid(), now() - interval '301 s', now())")
      end

      expect(&late).to raise_error(ActiveRecord::SerializationFailure, /comes too late/)
      expect(Leasehold::LeaseTable.new(connection).guarded?(600)).to be(true)
    end

    it "settles the leases that it had begun, by the rows that it wrote (R02)" do
      kept, dropped = %w[alice bob].map { |name| Leasehold.client.begin_update(creates: [Support::Claims.username(name)]).uuid }
      connection.execute("INSERT INTO cells_outstanding_leases (uuid, created_at, updated_at) VALUES ('#{kept}', now(), now())")
      stale_after(0.001)
      let_it_settle
      run_job("reconcile")

      expect(claimed(User, :username)).to eq(["alice"])
      expect(outstanding_leases + lease_rows).not_to include(kept, dropped)
    end

    # The run reads the rows after the checkpoint, and the row of the range to read again.
    it "goes on from its checkpoint, with the corrections that were deferred (V07)" do
      gone = Support::Claims.username("gone", id: 2)
      Leasehold.client.commit_update(Leasehold.client.begin_update(creates: [gone]).uuid)
      insert_users([1, 4])
      connection.execute("INSERT INTO cells_claims_verifications VALUES ('User', #{connection.quote(checkpoint)}, now())")
      let_it_settle

      expect(Leasehold::Verifier.new(User).run).to include(failed: 0, finished: true, rows: 3)
      expect(claimed(User, :username)).to eq(%w[user-1 user-2 user-3 user-4])
      expect(connection.select_value("SELECT checkpoint FROM cells_claims_verifications")).to be_nil
    end

    it "runs the jobs that it had enqueued" do
      Leasehold.client.commit_update(Leasehold.client.begin_update(creates: [Support::Claims.username("gone", id: 9)]).uuid)
      insert_users([1, 2])
      run_job("bulk")
      expect(claimed(User, :username)).to eq(["user-1"])

      let_it_settle
      expect { run_job("verify") }.not_to change { lease_rows }
      expect(claimed(User, :username)).to eq(%w[user-1 user-2])
      expect { run_job("schedule") }.to change { ActiveJob::Base.queue_adapter.enqueued_jobs.size }.by(4)
    end
  end
end
