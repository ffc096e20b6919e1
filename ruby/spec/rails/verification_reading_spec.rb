# frozen_string_literal: true

require "rails_helper"

# Verification's reading of rows in scopes, views, roles, caches and transactions.
RSpec.describe "rows read by verification", :rails do
  let(:connection) { ActiveRecord::Base.connection }

  before do
    Leasehold.configuration.recent_within_seconds = 0.001
    connection.execute(<<~SQL)
      CREATE TABLE snippets (id bigint PRIMARY KEY, description text, name text, owner_id bigint DEFAULT 7, updated_at timestamp);
      INSERT INTO snippets (id, description, name) SELECT id, 'first-' || id, 'name-' || id FROM generate_series(1, 20) AS id
    SQL
  end

  after do
    Leasehold.configuration.recent_within_seconds = 3600
    connection.execute("DROP TABLE snippets CASCADE")
  end

  def things(table = "snippets", **options, &scope)
    stub_const("Thing", Class.new(ApplicationRecord) do
      self.table_name = table
      self.primary_key = "id"
      include Cells::Claimable
      cells_claims_attribute :name, type: self::CLAIMS_BUCKET_TYPE::PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things, **options
      cells_claims_metadata subject_type: self::CLAIMS_SUBJECT_TYPE::PROJECT, subject_key: :owner_id,
                            source_type: self::CLAIMS_SOURCE_TYPE::RAILS_TABLE_SNIPPETS
      cells_claims_scope(&scope) if scope
    end)
  end

  def verify(model)
    changed = Leasehold.client.list_leases.server_time
    Support::Waiting.wait_for("the server's clock") { Leasehold.client.list_leases.server_time > changed + 0.01 }
    Leasehold::Verifier.new(model).run
  end

  def names(numbers)
    numbers.map { |number| "name-#{number}" }.sort
  end

  {
    "all columns" => ->(*) { select("snippets.*") },
    "one of them" => ->(*) { select(:id) },
    "distinct ones of a join" => ->(*) { joins("JOIN snippets others ON true").select("snippets.*").distinct },
    "another name for one" => ->(*) { joins("JOIN snippets others ON others.id = snippets.id").select("snippets.*, others.description AS name") },
    "from a query" => ->(*) { from("(SELECT * FROM snippets) snippets") }
  }.each do |selection, scope|
    [{}, { if: ->(*) { true } }].each do |options|
      it "have all claimed columns if the scope selects #{selection}#{' and `if:` asks records' if options.any?}" do
        model = things(**options) { instance_exec(&scope) }
        verify(model)
        connection.execute("UPDATE snippets SET name = 'name-' || id + 1 WHERE id = 20")
        verify(model)

        expect(claimed(model, :name)).to eq(names([*1..19, 21]))
      end
    end
  end

  it "are recognised as being written, whatever the scope eager loads" do
    stub_const("Owner", Class.new(ApplicationRecord) { self.table_name = "users" })
    model = things { eager_load(:owner) }
    model.belongs_to(:owner, class_name: "Owner")
    other = PG.connect(Support::PostgresCluster.instance.url(Support::Cell[1].database))
    other.exec("BEGIN; UPDATE snippets SET name = 'other' WHERE id = 7")

    expect(verify(model)).to include(recent: 1, created: 19)
  ensure
    other&.close
  end

  it "can be in a view" do
    connection.execute("CREATE VIEW looks AS SELECT * FROM snippets")
    model = things("looks")
    verify(model)
    connection.execute("UPDATE snippets SET name = 'other' WHERE id = 1")

    expect(verify(model)).to include(missing: 1, extra: 1)
    expect(claimed(model, :name)).to eq(names(2..20) + ["other"])
  end

  {
    "has a limit" => [->(*) { limit(10) }, /has a limit/],
    "has a lock" => [->(*) { lock }, /has a lock/],
    "gives a row twice" => [->(*) { joins("JOIN snippets others ON others.id < 3") }, /more than once: add `distinct`/]
  }.each do |property, (scope, message)|
    it "are refused if the scope #{property}" do
      model = things { instance_exec(&scope) }

      expect { verify(model) }.to raise_error(Leasehold::Error::Misconfigured, message)
      expect(claimed(model, :name)).to be_empty
    end
  end

  it "are refused if the role cannot lock them" do
    connection.execute("CREATE ROLE onlooker; GRANT SELECT ON snippets TO onlooker; SET ROLE onlooker")
    expect { Leasehold::Verifier.new(things).run }.to raise_error(Leasehold::Error::Misconfigured, /GRANT UPDATE ON "snippets"/)
  ensure
    connection.execute("RESET ROLE; DROP OWNED BY onlooker; DROP ROLE onlooker")
  end

  it "are refused within an open transaction" do
    model = things
    expect { model.transaction { Leasehold::Verifier.new(model).run } }.to raise_error(ActiveRecord::TransactionIsolationError)
    expect(claimed(model, :name)).to be_empty
  end

  it "are refused if the lease table is missing" do
    model = things
    connection.execute("ALTER TABLE cells_outstanding_leases RENAME TO elsewhere")
    expect { Leasehold::Verifier.new(model).run }.to raise_error(Leasehold::Error::Misconfigured, /leasehold:install`/)
    expect(outstanding_leases).to be_empty
  ensure
    connection.execute("ALTER TABLE elsewhere RENAME TO cells_outstanding_leases")
  end

  it "are not taken from the query caches of any database" do
    cached = []
    subscriber = ->(*, payload) { cached << payload[:cached] if payload[:sql].start_with?("SELECT COUNT") }
    User.cache do
      Key.cache do
        ActiveSupport::Notifications.subscribed(subscriber, "sql.active_record") do
          Leasehold::Uncached.run { 2.times { [User, Key].each(&:count) } }
        end
      end
    end

    expect(User.connection).not_to be(Key.connection)
    expect(cached).to eq([nil] * 4)
  end

  # Runs with the query cache on, as it is in jobs and requests.
  it "are read again immediately before the commit (V03)" do
    model = things(if: ->(*) { true })
    verify(model)
    model.where(id: 3).update_all(name: "renamed")
    changed_back = false
    back = lambda do |*|
      next if changed_back

      changed_back = true
      Thread.new { model.find(3).update!(name: "name-3") }.join
    end
    Leasehold.client.singleton_class.prepend(Module.new do
      define_method(:begin_encoded) do |step, **options|
        back.call if step.destroy_count.positive?
        super(step, **options)
      end
    end)
    ActiveRecord::Base.cache { verify(model) }

    expect(changed_back).to be(true)
    expect(model.find(3).name).to eq("name-3")
    expect(claimed(model, :name)).to eq(names(1..20))
  end

  describe "as a job" do
    include ActiveJob::TestHelper

    before { ActiveJob::Base.queue_adapter = :test }

    after do
      Leasehold.configuration.verification_time_budget_seconds = 270
      Leasehold.configuration.verification_page_rows = 1000
    end

    it "are read from the beginning if calls failed in any part" do
      Leasehold.configuration.verification_time_budget_seconds = 1e-9
      Leasehold.configuration.verification_page_rows = 5
      model = things
      allow(Leasehold::Models).to receive(:fetch).and_return(model)
      failures = 1
      allow(Leasehold.client).to receive(:begin_encoded).and_wrap_original do |begun, *arguments, **options|
        raise Leasehold::Error::DeadlineExceeded, "no answer" if (failures -= 1) >= 0

        begun.call(*arguments, **options)
      end
      Leasehold::VerifyJob.perform_later("Thing")
      20.times { perform_enqueued_jobs }

      expect(enqueued_jobs).to be_empty
      expect(claimed(model, :name)).to eq(names(1..20))
    end
  end
end
