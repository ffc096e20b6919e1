# frozen_string_literal: true

require "rails_helper"

# A save reads the row before it writes it, under the lock that the statement takes.
RSpec.describe "the lock under which a save reads its row", :rails do
  let(:rival) { PG.connect(Support::PostgresCluster.instance.url(Support::Cell[1].database)) }
  let(:owner) { User.create!(username: "owner") }
  let!(:email) { Email.create!(email: "old@example.com", user: owner) }

  before { Email.connection.execute("CREATE TABLE notes (email_id bigint REFERENCES emails)") }

  after do
    rival.close
    Email.connection.execute("DROP TABLE notes")
  end

  def locks(&save)
    seen = []
    watch = ->(*, payload) { seen << payload[:sql][/FOR .*UPDATE/] }
    ActiveSupport::Notifications.subscribed(watch, "sql.active_record", &save)
    seen.compact
  end

  # If an UPDATE changes a column to which a foreign key may refer, PostgreSQL locks the row against new
  # references (PostgreSQL 15, src/backend/access/heap/heapam.c, `heap_update`).
  it "is the lock of the UPDATE itself" do
    Email.connection.execute("CREATE UNIQUE INDEX only_some ON users (username) WHERE id < 0")
    User.connection.schema_cache.clear!

    expect(locks { owner.update!(username: "new") }).to eq(["FOR NO KEY UPDATE"])
    expect(locks { email.update!(user: User.create!(username: "other")) }).to eq(["FOR NO KEY UPDATE"])
    expect(locks { email.update!(email: "new@example.com") }).to eq(["FOR UPDATE"])
    expect(locks { owner.update!(id: 900_000) }).to eq(["FOR UPDATE"])
    expect(locks { email.destroy! }).to eq(["FOR UPDATE"])
  ensure
    Email.connection.execute("DROP INDEX only_some")
    User.connection.schema_cache.clear!
  end

  it "causes no deadlock with a transaction that refers to the row and then writes it" do
    rival.exec("BEGIN; INSERT INTO notes VALUES (#{email.id})")
    saving = Thread.new { User.connection_pool.with_connection { Email.find(email.id).update!(email: "new@example.com") } }
    saving.report_on_exception = false
    blocked = "SELECT 1 FROM pg_stat_activity WHERE #{rival.backend_pid} = ANY (pg_blocking_pids(pid))"
    wait_for("the save's lock") { Support::Cell[1].query(blocked).any? }
    rival.exec("UPDATE emails SET updated_at = now() WHERE id = #{email.id}; COMMIT")
    saving.value

    expect(claimed(Email, :email)).to eq(["new@example.com"])
  end
end
