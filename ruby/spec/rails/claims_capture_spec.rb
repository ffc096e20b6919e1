# frozen_string_literal: true

require "rails_helper"
require "leasehold/relay"

RSpec.describe "the capture of claimed columns", :rails do
  before do
    Support::Outbox.install
    @settings = %i[strict_claims recent_within_seconds].to_h { |name| [name, Leasehold.configuration.public_send(name)] }
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

    it "goes on after a model that can't be verified, and quotes nothing of its error (Q22)" do
      migrate { cells_claims_capture :routes }
      former = Route.cells_claims_scope_block
      Route.cells_claims_scope { raise IndexError, "secret" }
      user = User.create!(username: "alice")
      Route.insert_all([{ path: "a", user_id: user.id, created_at: Time.now, updated_at: Time.now }])
      User.update_all(username: "bob")
      seen = events(:unverifiable) { drain }
      expect(seen.map { |event| event.values_at(:model, :error) }).to eq([%w[Route IndexError]])
      expect(seen.to_s).not_to include("secret")
      expect(claimed(User, :username)).to eq(["bob"])
    ensure
      Route.cells_claims_scope_block = former
      migrate { end_cells_claims_capture :routes }
    end

    it "leaves out malformed rows, says so, and quotes nothing of them (Q22)" do
      change = ->(rows) { JSON.generate(table: "secret", operation: "UPDATE", rows: rows) }
      bodies = ["secret", "", "null", "[]", '"secret"', "\xFFsecret", '{"table":"secret","operation":"UPDATE"}', '{"table":[],"operation":"UPDATE","rows":[]}',
                change.call({}), change.call(["secret"]), change.call([["secret"]]), change.call([[[{ secret: 1 }], [], []]]), "[" * 200]
      bodies.each { |body| execute("SELECT leasehold_submit('leasehold.claims', '7', '\\x#{body.unpack1("H*")}')") }
      execute("SELECT leasehold_complete(gen_random_uuid(), 'leasehold.claims', '7', 1)")
      insert_users([1])
      seen = events(:unverified_rows) { drain }
      expect(seen).to eq([{ table: nil, reason: "MALFORMED" }] * (bodies.size + 1))
      expect(claimed(User, :username)).to eq(["user-1"])
      expect(Leasehold::Relay.new(ApplicationRecord).drain).to eq(0)
    end

    it "tells of a table that no model of the database claims for" do
      migrate { cells_claims_capture :cells_claims_verifications, columns: %w[model] }
      execute("INSERT INTO cells_claims_verifications (model, updated_at) VALUES ('Gone', now())")
      expect(events(:unverified_rows) { drain }).to eq([{ table: "public.cells_claims_verifications", reason: "NO_MODEL" }])
    ensure
      migrate { end_cells_claims_capture :cells_claims_verifications }
    end

    it "goes on after the server was away (Q06)" do
      @relay = Leasehold::Relay.new(ApplicationRecord).start
      server.kill
      failures = Thread::Queue.new
      ActiveSupport::Notifications.subscribed(->(*, payload) { failures << payload }, "relay_failed.leasehold") do
        insert_users([1])
        Timeout.timeout(60) { failures.pop }
      end
      server.start
      Support::Waiting.wait_for_answer("the claim") { claimed(User, :username) == ["user-1"] }
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
    expect { migrate { cells_claims_capture :users, mode: :lax } }.to raise_error(StandardError, /`mode` is unknown/)
  ensure
    migrate { end_cells_claims_capture :emails }
  end

  # @return [String] what the doctor says of the database
  def diagnosis
    output = StringIO.new
    Leasehold::Console.new(output: output, dry_run: false).doctor
    output.string
  rescue Leasehold::Console::Failed
    output.string
  end

  it "has the doctor warn of gaps" do
    migrate { cells_claims_capture :emails }
    expect(diagnosis).not_to match(/^(warn|fault)/)
    execute("ALTER TABLE emails DISABLE TRIGGER leasehold_claims_delete")
    expect(diagnosis).to match(/^warn   database .*\n +changes of claimed columns are not captured: emails: the trigger `leasehold_claims_delete` is disabled$/)
  ensure
    migrate { end_cells_claims_capture :emails }
  end

  describe "in strict mode" do
    before do
      Leasehold.configuration.strict_claims = true
      migrate { %i[users emails routes].each { |table| cells_claims_capture table, mode: :strict } }
    end

    after { migrate { %i[users emails routes].each { |table| end_cells_claims_capture table } } }

    def refused(&block)
      expect(&block).to raise_error(an_instance_of(Leasehold::ChangeNotClaimed), /claimed columns of `public\.\w+` were changed without a claim/)
    end

    it "needs the setting, without which saves would be refused" do
      Leasehold.configuration.strict_claims = false
      expect { migrate { cells_claims_capture :users, mode: :strict } }.to raise_error(StandardError, /`strict_claims`/)
      refused { User.create!(username: "alice") }
      expect(diagnosis).to match(/^fault  database .*: a capture of claims is strict.*`strict_claims`/)
      expect([User.count, claimed(User, :username)]).to eq([0, []])
    end

    it "lets saves and destroys of the models pass (Q06)" do
      alice = User.create!(username: "alice")
      alice.update!(username: "Bob")
      alice.touch
      User.transaction { alice.update!(username: "carol") && alice.update!(username: "Bob") }
      alice.update!(id: alice.id + 7)
      email = Email.create!(user: alice, email: "a@example.com")
      route = Route.create!(user: alice, path: "a/b")
      route.update!(path: "a")
      Leasehold.claiming { |claims| claims.save(email.tap { email.email = "b@example.com" }, User.new(username: "dave")) }
      expect_claims_as_rows
      expect([claimed(Email, :email), claimed(Route, :path)]).to eq([["b@example.com"], ["a"]])
      User.find_each(&:destroy!)
      expect([User.count, Email.count, claimed(User, :username), claimed(Email, :email), claimed(Route, :path)]).to eq([0, 0, [], [], []])
    end

    it "lets saves of IP addresses pass, whatever their mask (Q06)" do
      execute("ALTER TABLE emails ADD COLUMN address inet")
      Email.reset_column_information
      allow(Email).to receive(:cells_claims_columns).and_return(%w[id user_id email address])
      migrate { cells_claims_capture :emails, mode: :strict }
      user = User.create!(username: "alice")
      addresses = %w[::1 ::1/128 ::1/32 2001:db8::/32 ::ffff:10.0.0.1 ::1.2.3.4 1:0:0:2:0:0:0:3 10.0.0.1 10.0.0.1/32 10.0.0.0/8 10.0.0.1/12]
      addresses.each_with_index { |address, number| Email.create!(user: user, email: "#{number}@example.com", address: address) }
      expect(Email.where.not(address: nil).count).to eq(addresses.size)
      refused { Email.update_all(address: "::2") }
    ensure
      execute("ALTER TABLE emails DROP COLUMN address CASCADE")
      Email.reset_column_information
    end

    # A model whose rows have a key of type `char(n)`, and whose capture is strict.
    def with_padded_keys
      execute("CREATE TABLE plates (code char(8) PRIMARY KEY, price numeric(30, 12), owner char(4))")
      plate = stub_const("Plate", Class.new(ApplicationRecord) { self.table_name = "plates" })
      sharing = double(cells_claims_columns: plate.column_names)
      allow(Leasehold::Models).to receive(:sharing_table).and_wrap_original { |run, model| model == plate ? [sharing] : run.call(model) }
      migrate { cells_claims_capture :plates, columns: %w[code price owner], mode: :strict }
      yield plate
    ensure
      migrate { end_cells_claims_capture :plates }
      execute("DROP TABLE plates")
    end

    it "lets saves of long decimals and of padded texts pass (Q06)" do
      with_padded_keys do |plates|
        tell = ->(plate) { Leasehold::Transactions::CoveredRow.wrote(plate, %w[code price owner]) }
        ["123456789012345678.123456789012", "0.000000000001", "1e17", "-7", "12.5", nil].each_with_index do |price, number|
          plates.transaction { tell.call(plates.create!(code: "a#{number}", price: price, owner: "ö")) }
        end
        plate = plates.find("a0")
        plates.transaction { plate.update!(price: "123456789012345678.123456789013") && tell.call(plate) }
        expect(plates.pluck(:price).compact.max).to eq(BigDecimal("123456789012345678.123456789013"))
        refused { plates.update_all(price: "123456789012345678.123456789012") }
        plates.transaction { plates.find("a1").destroy!.then { |gone| Leasehold::Transactions::CoveredRow.deleted(gone) } }
        expect(plates.exists?("a1")).to be(false)
      end
    end

    it "lets saves pass whose flags are off" do
      Leasehold.configuration.feature_enabled { false }
      user = User.create!(username: "alice")
      user.update!(username: "bob")
      user.destroy!
      expect(claimed(User, :username)).to eq([])
    ensure
      Leasehold.configuration.feature_enabled { true }
    end

    it "refuses what bypasses the callbacks, whoever writes it (Q06)" do
      user = User.create!(username: "alice")
      refused { User.update_all(username: "bob") }
      refused { user.update_columns(username: "bob") }
      refused { User.insert_all([{ username: "frank", created_at: Time.now, updated_at: Time.now }]) }
      refused { User.delete_all }
      refused { execute("TRUNCATE users CASCADE") }
      refused { User.transaction { user.update!(username: "bob") && execute("UPDATE users SET username = 'carol'") } }
      refused { User.transaction { execute("UPDATE users SET username = 'carol'") && User.create!(username: "dave") } }
      expect { Support::Cell[1].query("UPDATE users SET username = 'bob'") }.to raise_error(PG::Error, /LH010|without a claim.*HINT: +Change the rows by their model/m)
      expect_only_alice
    end

    it "lets statements pass that leave the columns as they were (Q06)" do
      User.create!(username: "alice")
      execute("UPDATE users SET updated_at = now(), username = 'alice'")
      User.transaction do
        execute("UPDATE users SET username = 'bob'")
        execute("UPDATE users SET username = 'alice'")
        execute("INSERT INTO users (id, username, created_at, updated_at) VALUES (1, 'x', now(), now())")
        execute("DELETE FROM users WHERE id = 1")
      end
      User.transaction { execute("DELETE FROM users") and raise ActiveRecord::Rollback }
      expect_only_alice
    end

    it "refuses SQL that takes a save back, whose claims would stay (Q06)" do
      user = User.create!(username: "alice")
      former = User.where(id: user.id).pluck(:id, :username, :created_at, :updated_at).map { |row| %i[id username created_at updated_at].zip(row).to_h }
      refused { User.transaction { user.update!(username: "bob") && user.update_columns(username: "alice") } }
      user.reload
      refused { User.transaction { User.where(id: user.id).destroy_all && User.insert_all(former) } }
      user = User.find(user.id)
      refused { User.transaction { user.update!(username: "bob") && User.upsert(former.first) } }
      refused { User.transaction { User.create!(username: "carol").then { |gone| User.where(id: gone.id).delete_all } } }
      refused { User.transaction(joinable: false) { User.create!(username: "carol").then { |gone| User.where(id: gone.id).delete_all } } }
      expect_only_alice
    end

    it "goes by what a savepoint leaves (Q06)" do
      user = User.create!(username: "zoe")
      User.transaction do
        User.transaction(requires_new: true) { execute("UPDATE users SET username = 'gone'") and raise ActiveRecord::Rollback }
        User.transaction(requires_new: true) { user.update!(username: "gone") and raise ActiveRecord::Rollback }
        User.transaction(requires_new: true) { user.reload.update!(username: "alice") }
      end
      expect_only_alice
      refused do
        User.transaction do
          User.transaction(requires_new: true) { user.update!(username: "bob") and raise ActiveRecord::Rollback }
          execute("UPDATE users SET username = 'bob'")
        end
      end
      expect_only_alice
    end

    it "covers transactions within a transaction that is not joinable" do
      bob = User.create!(username: "bob")
      User.transaction(joinable: false) do
        User.create!(username: "alice")
        bob.destroy!
      end
      expect_only_alice
    end

    it "refuses one of two transactions, and not the other" do
      User.create!(username: "alice")
      raw = PG.connect(Support::PostgresCluster.instance.url(Support::Cell[1].database))
      raw.exec("BEGIN; INSERT INTO users (id, username, created_at, updated_at) VALUES (1, 'x', now(), now())")
      bob = User.create!(username: "bob")
      expect { raw.exec("COMMIT") }.to raise_error(PG::Error, /without a claim/)
      bob.destroy!
      expect_only_alice
    ensure
      raw&.close
    end

    it "checks a transaction of many rows in a short time" do
      User.transaction { 300.times { |number| User.create!(username: "user-#{number}") } }
      expect(claimed(User, :username).size).to eq(300)
    end

    it "is relayed without a verification, and tells no value (Q22)" do
      log = StringIO.new
      former, ActiveRecord::Base.logger = ActiveRecord::Base.logger, Logger.new(log)
      User.create!(username: "alice")
      ActiveRecord::Base.logger = former
      seen = events(:list_records) { drain }
      expect(seen).to be_empty
      covered = log.string.lines.grep(/leasehold\.covered_claims/)
      expect(covered.size).to eq(1)
      expect(covered.join).not_to include("alice")
      expect { User.update_all(username: "secret") }.to raise_error { |error| expect(error.message).not_to include("secret") }
    ensure
      ActiveRecord::Base.logger = former
    end
  end
end
