# frozen_string_literal: true

require "rails_helper"
require "leasehold/relay"

RSpec.describe "the capture of claimed columns", :rails do
  before do
    Support::Outbox.install
    @settings = %i[recent_within_seconds].to_h { |name| [name, Leasehold.configuration.public_send(name)] }
  end

  after do
    @relay&.stop(within: 60)
    @settings.each { |name, value| Leasehold.configuration.public_send("#{name}=", value) }
    Support::Outbox.remove
  end

  def migrate(&statements)
    migration = Class.new(ActiveRecord::Migration[6.1]) { define_method(:up, &statements) }
    ActiveRecord::Migration.suppress_messages { migration.new.migrate(:up) }
  end

  def execute(sql)
    ActiveRecord::Base.connection.execute(sql)
  end

  def drain
    Leasehold::Relay.new(ApplicationRecord).drain
  end

  # @return [Array<Hash>] the payloads of the events that the block publishes
  def events(name)
    seen = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { seen << payload }, "#{name}.leasehold") { yield }
    seen
  end

  def expect_claims_as_rows
    expect(claimed(User, :username)).to eq(User.order(:username).pluck(:username))
    expect(claimed(User, :id)).to eq(User.pluck(:id).map(&:to_s).sort)
    expect(outstanding_leases + lease_rows).to be_empty
  end

  # @return [Hash] the report of a verification of the whole table
  def compared
    Leasehold::Verifier.new(User, dry_run: true).run
  end

  describe "with reports" do
    before { migrate { cells_claims_capture :users } }

    it "claims what statements write past the callbacks, and gives up what they remove (Q06)" do
      users = %w[alice bob carol dave].map { |name| User.create!(username: name) }
      execute("UPDATE users SET username = 'Eve' WHERE username = 'alice'")
      User.where(username: "bob").update_all(username: "bill")
      User.where(username: "carol").delete_all
      User.insert_all([{ username: "frank", created_at: Time.now, updated_at: Time.now }])
      Support::Cell[1].query("UPDATE users SET id = 9000000 WHERE username = 'dave'")
      expect(claimed(User, :username)).to eq(%w[alice bob carol dave])
      drain
      expect(User.order(:username).pluck(:username)).to eq(%w[Eve bill dave frank])
      expect_claims_as_rows
      expect(users.first.reload.update(username: "alice")).to be(true)
      drain
      expect_claims_as_rows
    end

    it "claims what COPY writes, and what it swaps, in one statement (Q06)" do
      rows = Array.new(2_500) { |number| "#{5_000 + number * 3}\tcopied-#{number}\t2020-01-01\t2020-01-01\n" }
      connection = PG.connect(Support::PostgresCluster.instance.url(Support::Cell[1].database))
      connection.copy_data("COPY users (id, username, created_at, updated_at) FROM STDIN") { connection.put_copy_data(rows.join) }
      connection.exec("UPDATE users SET username = 'copied-' || 2499 - (id - 5000) / 3")
      drain
      # Twice, since a user's id is claimed too.
      expect(compared).to include(rows: 2_500, claims: 5_000, records: 5_000, missing: 0, extra: 0, different: 0)
    ensure
      connection&.close
    end

    it "hears nothing of statements that leave the columns as they are, or are rolled back" do
      User.create!(username: "alice")
      drain
      execute("UPDATE users SET updated_at = now(), username = 'alice'")
      User.transaction { User.update_all(username: "bob") and raise ActiveRecord::Rollback }
      expect(Leasehold::Relay.new(ApplicationRecord).drain).to eq(0)
      expect_only_alice
    end

    it "tells of a name that another cell has, and leaves it there (Q06, V06)" do
      as_cell(2) { User.create!(username: "bob") }
      User.create!(username: "alice")
      User.update_all(username: "bob")
      expect(events(:finding) { drain }).to include(a_hash_including(model: "User", outcome: "other_cell"))
      expect(claimed(User, :username)).to eq([])
      as_cell(2) { expect(claimed(User, :username)).to eq(["bob"]) }
    end

    it "verifies a row again whose save is under way (V02)" do
      user = User.create!(username: "alice")
      User.update_all(username: "bob")
      other = Thread.new { User.connection_pool.with_connection { User.transaction { User.lock.find(user.id) and Thread.stop } } }
      Support::Waiting.wait_for("the lock") { other.stop? }
      pauses = []
      relay = Leasehold::Relay.new(ApplicationRecord)
      relay.define_singleton_method(:pause) { |seconds| pauses << seconds and other.wakeup.join }
      relay.drain
      expect(pauses.size).to eq(1)
      expect_claims_as_rows
    end

    it "leaves the claims of a table that was truncated to a verification, and says so (V11)" do
      User.create!(username: "alice")
      drain
      execute("TRUNCATE users CASCADE")
      expect(events(:unverified_rows) { drain }).to eq([{ table: "public.users", reason: "TRUNCATE" }])
      expect(claimed(User, :username)).to eq(["alice"])
    end

    it "corrects within seconds while a relay runs, and logs no value (Q06, Q22)" do
      log = StringIO.new
      former, ActiveRecord::Base.logger = ActiveRecord::Base.logger, Logger.new(log)
      @relay = Leasehold::Relay.new(ApplicationRecord).start
      Support::Cell[1].query("INSERT INTO users (username, created_at, updated_at) VALUES ('secret', now(), now())")
      Support::Waiting.wait_for("the claim") { claimed(User, :username) == ["secret"] }
      expect(log.string).not_to include("secret")
    ensure
      ActiveRecord::Base.logger = former
    end

    it "ends" do
      migrate { end_cells_claims_capture :users }
      User.insert_all([{ username: "frank", created_at: Time.now, updated_at: Time.now }])
      expect(Leasehold::Relay.new(ApplicationRecord).drain).to eq(0)
    end
  end

  it "captures the columns of the table's models, and lists gaps" do
    migrate { cells_claims_capture :emails }
    expect(Support::Cell[1].query("SELECT columns FROM leasehold_claims_captures")).to eq([{ "columns" => "{id,user_id,email}" }])
    execute("ALTER TABLE emails DISABLE TRIGGER leasehold_claims_delete")
    expect(Support::Cell[1].query("SELECT gap FROM leasehold_claims_gaps()").size).to eq(1)
    execute("ALTER TABLE emails ENABLE TRIGGER leasehold_claims_delete")
    expect { migrate { cells_claims_capture :schema_migrations } }.to raise_error(StandardError, /no model claims columns/)
  ensure
    migrate { end_cells_claims_capture :emails }
  end
end
