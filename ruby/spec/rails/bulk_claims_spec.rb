# frozen_string_literal: true

require "rails_helper"

RSpec.describe "bulk claims", :rails do
  include ActiveJob::TestHelper

  before { ActiveJob::Base.queue_adapter = :test }

  # Schedules the job as the guide shows, and runs it.
  def schedule(model, attribute, payload)
    Cells::BulkClaimsWorker.perform_async(model.name, attribute.to_s, payload)
    perform_enqueued_jobs while enqueued_jobs.any?
  end

  def insert(*usernames)
    User.insert_all(usernames.map { |name| { username: name, **times } }).rows.flatten
  end

  def times
    { created_at: Time.now, updated_at: Time.now }
  end

  it "claims inserted rows" do
    schedule(User, :username, "create_record_ids" => insert("alice", "bob"))

    expect(claimed(User, :username)).to eq(%w[alice bob])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  # Rails 7.2 and newer can delay a job until the COMMIT. The backend of this example asks Rails not to delay,
  # like a backend that has its queue in another database.
  it "claims after the COMMIT if it is scheduled in a transaction", if: Support::RailsVersions.since?("7.2") do
    queue_adapter.define_singleton_method(:enqueue_after_transaction_commit?) { false }
    schedule_in_transaction = lambda do |outcome|
      User.transaction do
        Cells::BulkClaimsWorker.perform_async("User", "username", { "create_record_ids" => insert("alice") })
        expect(enqueued_jobs).to be_empty
        raise ActiveRecord::Rollback if outcome == :rolled_back
      end
      enqueued_jobs.size
    end

    expect(%i[rolled_back committed].map(&schedule_in_transaction)).to eq([0, 1])
    perform_enqueued_jobs while enqueued_jobs.any?
    expect(claimed(User, :username)).to eq(["alice"])
  end

  # `rails new --minimal` leaves ActiveJob's railtie out.
  it "claims after the COMMIT in an application without ActiveJob's railtie", if: Support::RailsVersions.since?("7.2") do
    script = <<~RUBY
      require "active_job"
      ActiveJob::Base.queue_adapter = :test
      jobs = ActiveJob::Base.queue_adapter.enqueued_jobs
      User.transaction do
        Cells::BulkClaimsWorker.perform_async("User", "username", { "create_record_ids" => [1] })
        p jobs.size
      end
      p jobs.size
    RUBY

    output = Support::CellProcess.run(Support::Cell[1], server.address, script, "RAILS_APP_WITHOUT_ACTIVE_JOB" => "yes")
    # ActiveJob logs to the same output.
    expect(output.scan(/^\d+$/)).to eq(%w[0 1])
  end

  it "claims the rows' current values, not those in the query cache" do
    ids = insert("alice")
    User.cache do
      User.unscoped.where(id: ids).to_a
      ActiveRecord::Base.connection.execute("UPDATE users SET username = 'bob'")
      Leasehold::BulkClaimsJob.perform_now("User", "username", "create_record_ids" => ids)
    end

    expect(claimed(User, :username)).to eq(["bob"])
  end

  it "begins under a new key if its lease was rolled back before the commit" do
    ids = insert("alice")
    job = Leasehold::BulkClaimsJob.new("User", "username", "create_record_ids" => ids)
    died = false
    subscriber = lambda do |*, payload|
      next if died || payload[:code] != "OK"

      died = true
      outstanding_leases.each { |uuid| Leasehold.client.rollback_update(uuid) }
    end
    ActiveSupport::Notifications.subscribed(subscriber, "begin_update.leasehold") { 2.times { job.perform_now } }

    expect(died).to be(true)
    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "begins under a new key if its process died after the begin and the lease was rolled back (B09)" do
    job = Leasehold::BulkClaimsJob.new("User", "username", "create_record_ids" => insert("alice"))
    allow_any_instance_of(Leasehold::LeaseTable).to receive(:insert).and_raise(Interrupt)
    expect { job.perform_now }.to raise_error(Interrupt)
    outstanding_leases.each { |uuid| Leasehold.client.rollback_update(uuid) }

    allow_any_instance_of(Leasehold::LeaseTable).to receive(:insert).and_call_original
    job.perform_now

    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "destroys the claims of deleted rows" do
    users = %w[alice bob].map { |name| User.create!(username: name) }
    metadata = users.filter_map { |user| user.build_destroy_metadata_for_worker(:username) }
    User.delete_all
    schedule(User, :username, "destroy_metadata" => metadata)

    expect(claimed(User, :username)).to be_empty
  end

  it "destroys no claim that a row has again in another spelling, and destroys a claim that no row has" do
    user = User.create!(username: "Alice")
    metadata = [user.build_destroy_metadata_for_worker(:username)]
    User.delete_all
    User.insert_all([{ id: user.id, username: "alice", **times }])
    schedule(User, :username, "destroy_metadata" => metadata)
    expect(claimed(User, :username)).to eq(["Alice"])

    schedule(User, :username, "destroy_metadata" => metadata, "create_record_ids" => [user.id])
    expect(claimed(User, :username)).to eq(["alice"])

    User.update_all(username: "bob")
    schedule(User, :username, "destroy_metadata" => metadata)
    expect(claimed(User, :username)).to be_empty
  end

  it "logs no claimed value" do
    log = StringIO.new
    before = ActiveJob::Base.logger
    ActiveJob::Base.logger = Logger.new(log)
    users = %w[alice bob].map { |name| User.create!(username: name) }
    schedule(User, :username, "destroy_metadata" => users.map { |user| user.build_destroy_metadata_for_worker(:username) })

    expect(log.string).to include("BulkClaimsJob").and include("Performed")
    expect(log.string).not_to match(/alice|bob/)
  ensure
    ActiveJob::Base.logger = before
  end

  it "claims the rest if some claims are taken, were never created or have moved" do
    as_cell(2) { User.create!(username: "theirs") }
    gone = User.find(insert("never-claimed").first).build_destroy_metadata_for_worker(:username)
    schedule(User, :username, "create_record_ids" => insert("alice", "theirs", "bob"), "destroy_metadata" => [gone])

    expect(claimed(User, :username)).to eq(%w[alice bob])
  end

  it "splits a batch into as many updates as the server's limit requires" do
    ids = insert(*Array.new(4_500) { |number| "name-#{number}" })
    absent = { "bucket_type" => 4, "source_type" => 1, "source_id" => "00" * 8 }
    gone = Array.new(2_100) { |number| absent.merge("bucket_value" => "absent-#{number}") }
    begun = calls { schedule(User, :username, "create_record_ids" => ids, "destroy_metadata" => gone) }
            .select { |call| call[:call] == :begin_update && call[:code] == "OK" }

    expect(begun.sum { |call| call[:creates] }).to eq(4_500)
    expect(begun.map { |call| call[:creates] }).to all(be <= 2_000)
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "retries claims that are under another lease" do
    id = insert("alice").first
    lease = as_cell(2) { Leasehold.client.begin_update(creates: [Support::Claims.username("alice", id: 9)]) }
    creates = User.find(id).cells_claims
    update = Leasehold::BulkUpdate.new(connection: User.connection, key: "k", creates: creates, destroys: [])
    expect { update.run }.to raise_error(Leasehold::Error::Busy)
    as_cell(2) { Leasehold.client.rollback_update(lease.uuid) }
    schedule(User, :username, "create_record_ids" => [id])

    expect(claimed(User, :username)).to eq(["alice"])
  end

  it "rolls its lease back if the lease's row is written too late (R04), and claims on the next try" do
    adapter = ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::TestAdapter.new
    job = Leasehold::BulkClaimsJob.new("User", "username", { "create_record_ids" => insert("alice") })
    table = Leasehold::LeaseTable
    late = Module.new { def clock_and_session = ["2001-01-01", *super.drop(1)] }
    stub_const("Leasehold::LeaseTable", Class.new(table) { prepend late })
    job.perform_now
    expect(outstanding_leases + lease_rows + claimed(User, :username)).to be_empty
    expect(adapter.enqueued_jobs.size).to eq(1)

    stub_const("Leasehold::LeaseTable", table)
    job.perform_now
    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "gets the same lease when the job runs again after its answer was lost" do
    creates = [User.find(insert("alice").first).cells_claims.last]
    2.times { Leasehold::BulkUpdate.new(connection: User.connection, key: "job", creates: creates, destroys: []).run }

    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  describe "of a table with several classes" do
    before do
      User.connection.execute("CREATE TABLE snippets (id bigserial PRIMARY KEY, type text, name text, path text, owner_id bigint)")
      stub_const("Thing", Class.new(ApplicationRecord) do
        self.table_name = "snippets"
        include Cells::Claimable
        cells_claims_attribute :name, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things
        cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id
      end)
      stub_const("SpecialThing", Class.new(Thing) do
        cells_claims_attribute :path, type: :ROUTES, feature_flag: :cells_claims_things
      end)
    end

    after { User.connection.execute("DROP TABLE snippets") }

    it "claim attributes that only a subclass of the named model claims" do
      ids = [nil, "SpecialThing"].map { |type| Thing.insert({ type: type, path: "a", owner_id: 7 }).rows.dig(0, 0) }
      schedule(Thing, :path, "create_record_ids" => ids)

      expect(records(SpecialThing, :path).map { |record| record.claim.source_id.unpack1("Q>") }).to eq(ids.last(1))
      expect(Thing.find(ids).map { |thing| thing.build_destroy_metadata_for_worker(:path)&.fetch("bucket_value") }).to eq([nil, "a"])
    end
  end

  it "lists the claimed attributes for one that is not claimed" do
    message = /`User#nick` is not claimed: use one of `id`, `username`/
    expect { Leasehold::BulkClaimsJob.perform_now("User", "nick", {}) }.to raise_error(ArgumentError, message)
    expect(User.new.build_destroy_metadata_for_worker(:nick)).to be_nil
  end

  it "refuses a payload with an unknown key" do
    expect { Leasehold::BulkClaimsJob.perform_now("User", "username", create_ids: [1]) }.to raise_error(
      ArgumentError, "the payload has the unknown key `create_ids`: use `create_record_ids` and `destroy_metadata`"
    )
  end

  it "does nothing while the feature flag is off" do
    Leasehold.configuration.feature_enabled { |flag| flag != :cells_claims_users }
    schedule(User, :username, "create_record_ids" => insert("alice"))
    Leasehold.configuration.feature_enabled { true }

    expect(claimed(User, :username)).to be_empty
  end
end
