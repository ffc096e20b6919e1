# frozen_string_literal: true

require "rails_helper"

RSpec.describe "verification", :rails do
  before { Leasehold.configuration.recent_within_seconds = 0.001 }

  after do
    Leasehold.configuration.recent_within_seconds = 3600
    Leasehold.configuration.verification_page_rows = 1000
    Leasehold.configuration.feature_enabled { true }
  end

  # Inserts rows without callbacks, with an old change time.
  def insert_users(ids, name: "'user-' || id")
    ActiveRecord::Base.connection.execute(<<~SQL)
      INSERT INTO users (id, username, created_at, updated_at)
      SELECT id, #{name}, now() - interval '1 day', now() - interval '1 day' FROM generate_series(#{ids.first}, #{ids.last}) AS id
    SQL
  end

  def change(id, **columns)
    User.where(id: id).update_all(columns)
  end

  # Changes the server's claims without the application.
  def drift(creates: [], destroys: [])
    lease = Leasehold.client.begin_update(creates: creates, destroys: destroys)
    Leasehold.client.commit_update(lease.uuid)
  end

  def claim(id, username, subject: id)
    Support::Claims.username(username, id: id).tap { |claim| claim.subject_id = subject }
  end

  # Waits until the changes are no longer recent.
  def let_it_settle
    changed = Leasehold.client.list_leases.server_time
    Support::Waiting.wait_for("the server's clock") { Leasehold.client.list_leases.server_time > changed + 0.01 }
  end

  def verify(model = User, **options, &progress)
    let_it_settle
    Leasehold::Verifier.new(model, **options, &progress).run
  end

  # @return [Hash{Integer => Array}] all claims of a model of one type, as value and subject by row
  #   id
  def all_claims(model = User, attribute = :username)
    claims = {}
    after = nil
    loop do
      page = Leasehold.client.list_records(
        source_type: model.cells_claims_source_type, after: after, deadline_seconds: 10,
        bucket_types: [model.cells_claims_declarations.fetch(attribute).type]
      )
      page.records.each { |record| claims[record.claim.source_id.unpack1("Q>")] = [record.claim.bucket_value, record.claim.subject_id] }
      return claims unless page.truncated?

      after = page.records.last.claim.source_id
    end
  end

  def findings
    found = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { found << payload }, "finding.leasehold") { yield }
    found
  end

  it "claims a table for the first time (V08), and then finds nothing to do" do
    insert_users(1..2500)
    first = verify
    second = verify

    expect(all_claims.size).to eq(2500)
    expect(claimed(User, :id).size).to be > 0
    expect(first).to include(finished: true)
    expect(calls { expect(verify).to include(second) }).to be_empty
    expect(outstanding_leases).to be_empty
  end

  it "follows `if:` and the scope" do
    insert_users(1..1)
    Route.insert_all(%w[top top/below].map { |path| { path: path, user_id: 1, created_at: 1.day.ago, updated_at: 1.day.ago } })
    verify(Route)

    expect(claimed(Route, :path)).to eq(["top"])
  end

  describe "of a table with several classes, or with rows hidden by a default scope" do
    before do
      ActiveRecord::Base.connection.execute(<<~SQL)
        CREATE TABLE snippets (id bigint PRIMARY KEY, type text, name text, owner_id bigint, hidden boolean DEFAULT false);
        INSERT INTO snippets VALUES (1, NULL, 'base', 7), (2, 'SpecialThing', 'special', 7), (3, 'OtherThing', 'other', 7)
      SQL
      stub_const("Thing", Class.new(ApplicationRecord) do
        self.table_name = "snippets"
        default_scope { where(hidden: false) }
        include Cells::Claimable
        cells_claims_attribute :name, type: self::CLAIMS_BUCKET_TYPE::PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things
        cells_claims_metadata subject_type: self::CLAIMS_SUBJECT_TYPE::PROJECT, subject_key: :owner_id
      end)
      stub_const("SpecialThing", Class.new(Thing))
      stub_const("OtherThing", Class.new(Thing))
      verify(Thing)
    end

    after { ActiveRecord::Base.connection.execute("DROP TABLE snippets") }

    it "leaves the claims of other classes' rows alone" do
      expect(claimed(Thing, :name)).to match_array(%w[base special other])
      expect(verify(SpecialThing)).to include(destroyed: 0)
      expect(claimed(Thing, :name)).to match_array(%w[base special other])
    end

    # Forgets the model, so that jobs of other examples do not look for it.
    after { Leasehold::Models.instance_variable_get(:@names).delete("Twin") }

    it "refuses two tables with the same bucket type and source type, which would destroy each other's claims" do
      stub_const("Twin", Class.new(ApplicationRecord)).class_eval do
        self.table_name = "users"
        include Cells::Claimable
        cells_claims_attribute :username, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things
        cells_claims_metadata subject_type: :PROJECT, subject_key: :id, source_type: Thing.cells_claims_source_type
      end
      expect { verify(Thing) }.to raise_error(Leasehold::Error::Misconfigured, /`Thing` and `Twin` claim the same/)
      expect(claimed(Thing, :name)).to match_array(%w[base special other])
    end

    it "leaves the claims of hidden rows alone" do
      Thing.where(id: 1).update_all(hidden: true)
      verify(Thing)
      expect(claimed(Thing, :name)).to match_array(%w[base special other])
    end
  end

  describe "of rows with other keys than numbers" do
    # Defines a model over a new table.
    def model(table, key_type, keys)
      connection = ActiveRecord::Base.connection
      connection.execute("CREATE TABLE #{table} (id #{key_type} PRIMARY KEY, name text, owner_id bigint)")
      keys.each_with_index do |key, number|
        connection.execute("INSERT INTO #{table} VALUES (#{connection.quote(key)}, 'name-#{number}', 7)")
      end
      stub_const("Thing", Class.new(ApplicationRecord) do
        self.table_name = table
        include Cells::Claimable
        cells_claims_attribute :name, type: self::CLAIMS_BUCKET_TYPE::PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things
        cells_claims_metadata subject_type: self::CLAIMS_SUBJECT_TYPE::PROJECT, subject_key: :owner_id
      end)
    end

    {
      "uuid" => ["gpg_keys", Array.new(25) { SecureRandom.uuid }],
      "text COLLATE \"en-x-icu\"" => ["pages_domains", %w[b A a B z Z é Ä ab Ab 1 10 2]],
      "character varying" => ["snippets", %w[a 1 z] + Array.new(20) { SecureRandom.uuid } + [SecureRandom.uuid.upcase]]
    }.each do |key_type, (table, keys)|
      it "follows the order of the keys' bytes: #{key_type}" do
        Leasehold.configuration.verification_page_rows = 3
        things = model(table, key_type, keys)
        verify(things)
        expect(claimed(things, :name)).to match_array(keys.each_index.map { |number| "name-#{number}" })

        things.where(id: keys.first).delete_all
        things.where(id: keys.last).update_all(name: "changed")
        expect(verify(things)).to include(missing: 1, extra: 2)
        expect(claimed(things, :name)).to match_array((1...keys.size - 1).map { |number| "name-#{number}" } + ["changed"])
      ensure
        ActiveRecord::Base.connection.execute("DROP TABLE #{table}")
      end
    end
  end

  describe "of values that are cast" do
    before do
      ActiveRecord::Base.connection.execute(
        "CREATE TABLE snippets (id bigint PRIMARY KEY, name text, level integer, owner_id bigint)"
      )
    end

    after { ActiveRecord::Base.connection.execute("DROP TABLE snippets") }

    # Defines a model that claims the attribute.
    #
    # @yield declares the cast, in the model's class
    def things(attribute, &cast)
      stub_const("Thing", Class.new(ApplicationRecord) do
        self.table_name = "snippets"
        include Cells::Claimable
        class_eval(&cast)
        cells_claims_attribute attribute, type: self::CLAIMS_BUCKET_TYPE::PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things
        cells_claims_metadata subject_type: self::CLAIMS_SUBJECT_TYPE::PROJECT, subject_key: :owner_id
      end)
    end

    {
      "by a type derived from one of Rails' own" => [:name, "alice", lambda do |*|
        reversed = Class.new(ActiveModel::Type::String) do
          define_method(:serialize) { |value| value&.reverse }
          define_method(:deserialize) { |value| value&.reverse }
        end
        attribute :name, reversed.new
      end],
      "by a serializer" => [:name, "alice", ->(*) { Support::RailsVersions.serialize_as_json(self, :name) }],
      "by an enumeration" => [:level, "high", ->(*) { Support::RailsVersions.enumerate(self, :level, { low: 0, high: 1 }) }]
    }.each do |how, (attribute, value, cast)|
      it "claims the values that the models read: #{how}" do
        model = things(attribute, &cast)
        model.create!(id: 1, owner_id: 7, attribute => value)

        expect(calls { verify(model) }).to be_empty
        expect(claimed(model, attribute)).to eq([value])
      end
    end
  end

  it "ignores subclasses of the model with a table of their own" do
    apart = Class.new(User) { self.table_name = "elsewhere" }
    insert_users(1..2)

    expect(User.descendants).to include(apart)
    expect(verify).to include(finished: true, rows: 2, created: 4)
  end

  it "leaves rows with negative keys alone, which cannot be claimed" do
    insert_users(-3..3)

    expect(verify).to include(finished: true, rows: 4)
    expect(all_claims.keys).to eq([1, 2, 3])
  end

  it "corrects every difference in 100,000 rows, and touches nothing else (V01 to V06)", :large do
    Leasehold.configuration.recent_within_seconds = 0.001
    insert_users(1..100_000)
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    verify
    backfill_seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    RSpec.configuration.reporter.message("backfill: #{(100_000 / backfill_seconds).round} rows/s, two claims each")
    expected = (1..100_000).to_h { |id| [id, ["user-#{id}", id]] }
    expect(all_claims).to eq(expected)

    # The other cell owns the new name of a row.
    as_cell(2) { drift(creates: [claim(7, "theirs")]) }
    change(100, username: "theirs")
    expected.delete(100)
    # One claim is missing, one has another subject, and one another spelling.
    drift(destroys: [claim(10, "user-10")])
    drift(destroys: [claim(11, "user-11")], creates: [claim(11, "user-11", subject: 99)])
    drift(destroys: [claim(12, "user-12")], creates: [claim(12, "USER-12")])
    # Three claims are extra: a second one of a row, one beyond the last row, one of a deleted row.
    drift(creates: [claim(20, "ghost"), claim(200_000, "beyond")])
    User.where(id: 30).delete_all
    expected.delete(30)
    # Two names moved to a row of another page, in both directions.
    { 40 => 90_040, 90_041 => 41 }.each do |from, to|
      change(from, username: "left-#{from}")
      change(to, username: "user-#{from}")
      expected.merge!(from => ["left-#{from}", from], to => ["user-#{from}", to])
    end
    # Names are swapped between two rows of a page, and between two pages.
    { 50 => 60, 70 => 90_070 }.each do |id, other_id|
      change(id, username: "user-#{other_id}")
      change(other_id, username: "user-#{id}")
      expected.merge!(id => ["user-#{other_id}", id], other_id => ["user-#{id}", other_id])
    end
    # Two rows changed recently: a renamed row, and a row without its claim. Verification must change neither
    # their claims nor the rows.
    change(80, username: "renamed", updated_at: 1.hour.from_now)
    drift(destroys: [claim(81, "user-81")])
    change(81, updated_at: 1.hour.from_now)
    expected.delete(81)

    found = findings { expect(verify).to include(finished: true) }

    expect(all_claims).to eq(expected)
    expect(as_cell(2) { all_claims }).to eq(7 => ["theirs", 7])
    expect(found.to_s).not_to include("theirs")
    expect(found).not_to be_empty
    expect(outstanding_leases).to be_empty
  end

  it "corrects 100,000 rows whose names were reversed, in one run (V05)", :large do
    insert_users(1..100_000)
    verify
    # The rows get unused names first, because the index is unique.
    ["'on-its-way-' || id", "'user-' || 100001 - id"].each do |name|
      ActiveRecord::Base.connection.execute("UPDATE users SET username = #{name}")
    end
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    report = verify
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    RSpec.configuration.reporter.message("reversed: #{(100_000 / seconds).round} rows/s")

    expect(report).to include(finished: true, missing: 100_000, other_row: 0, failed: 0)
    expect(all_claims).to eq((1..100_000).to_h { |id| [id, ["user-#{100_001 - id}", id]] })
    expect(outstanding_leases).to be_empty
  end

  it "changes nothing in a dry run" do
    insert_users(1..3)
    User.where(id: 1).delete_all
    drift(creates: [claim(1, "gone")])
    report = nil
    found = findings { expect(calls { report = verify(dry_run: true) }).to be_empty }

    expect(found.map { |finding| finding[:outcome] }.tally).to eq("to_create" => 4, "to_destroy" => 1)
    expect(report).to include(dry_run: true, to_create: 4, to_replace: 0, to_destroy: 1)
    expect(report).not_to include(:created)
    expect(all_claims.values).to eq([["gone", 1]])
  end

  describe "of an emptied table" do
    before do
      insert_users(1..3)
      verify
      User.delete_all
    end

    it "refuses to destroy all claims, unless allowed" do
      expect { verify }.to raise_error(Leasehold::Error::Misconfigured, /`User` has claims but no rows.*`allow_empty: true`.*`ALLOW_EMPTY=1`/)
      expect(all_claims.size).to eq(3)
      expect(verify(dry_run: true)).to include(to_destroy: 6)

      expect(verify(allow_empty: true)).to include(destroyed: 6)
      expect(verify).to include(finished: true)
    end

    it "passes the permission on to jobs" do
      let_it_settle
      expect { Leasehold::VerifyJob.perform_now("User") }.to raise_error(Leasehold::Error::Misconfigured)
      Leasehold::VerifyJob.perform_now("User", allow_empty: true)

      expect(all_claims).to be_empty
    end
  end

  it "stops at the end of its time budget, and continues there (V07)" do
    Leasehold.configuration.verification_page_rows = 100
    insert_users(1..1000)
    runs = 1
    runs += 1 until verify(time_budget_seconds: 0)[:finished] || runs > 20

    expect(runs).to be_between(10, 12)
    expect(all_claims.size).to eq(1000)
  end

  it "runs once at a time per model (V10)" do
    insert_users(1..3)
    other = PG.connect(Support::PostgresCluster.instance.url(Support::Cell[1].database))
    other.exec("SELECT pg_advisory_lock(hashtextextended('leasehold verification of User', 0))")
    expect(verify).to be_nil
    other.close

    Support::Waiting.wait_for("the lock") { verify }
    expect(all_claims.size).to eq(3)
  end

  describe "as jobs" do
    include ActiveJob::TestHelper

    before { ActiveJob::Base.queue_adapter = :test }

    it "runs for a model, unless its flag is off" do
      insert_users(1..3)
      let_it_settle
      Leasehold.configuration.feature_enabled { |flag| flag != :cells_claims_verification_worker_user }
      Leasehold::VerifyJob.perform_now("User")
      expect(all_claims).to be_empty

      Leasehold.configuration.feature_enabled { true }
      Leasehold::VerifyJob.perform_now("User")
      expect(all_claims.size).to eq(3)
    end

    it "asks no flag of the model if the setting says so" do
      insert_users(1..3)
      let_it_settle
      Leasehold.configuration.feature_enabled { |flag| flag != :cells_claims_verification_worker_user }
      Leasehold.configuration.verification_feature_flags = false
      Leasehold::VerifyJob.perform_now("User")

      expect(all_claims.size).to eq(3)
    ensure
      Leasehold.configuration.verification_feature_flags = true
      Leasehold.configuration.feature_enabled { true }
    end

    it "schedules its continuation if the time budget was too short" do
      Leasehold.configuration.verification_time_budget_seconds = 1e-9
      Leasehold.configuration.verification_page_rows = 1
      insert_users(1..3)
      Leasehold::VerifyJob.perform_later("User")
      10.times { perform_enqueued_jobs }

      expect(enqueued_jobs).to be_empty
      expect(all_claims.size).to eq(3)
    ensure
      Leasehold.configuration.verification_time_budget_seconds = 270
    end

    it "is scheduled for all models, one after the other" do
      Leasehold::ScheduleVerificationJob.perform_now
      scheduled = enqueued_jobs.select { |job| job["job_class"] == "Leasehold::VerifyJob" }

      expect(scheduled.map { |job| job["arguments"] }).to eq([["Email"], ["Key"], ["Route"], ["User"]])
      expect(scheduled.each_cons(2).map { |first, second| second[:at] - first[:at] }).to all(be_within(5).of(600))
    end

    it "lists the models that can be verified for one that cannot" do
      expect { Leasehold::VerifyJob.perform_now("Kernel") }.to raise_error(ArgumentError, /Email, Key, Route, User/)
    end
  end
end
