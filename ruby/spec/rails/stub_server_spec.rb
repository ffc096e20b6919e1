# frozen_string_literal: true

require "rails_helper"
require "active_support/testing/time_helpers"
require "leasehold/rspec"

RSpec.describe Leasehold::TestHelp::StubServer, :rails do
  before do
    Leasehold.configuration.transactional_tests = true
    server.kill
  end

  let!(:stub) { stub_claims_server }

  # Runs the block in a transaction as test frameworks open one, and rolls it back.
  def rolled_back
    connection = ActiveRecord::Base.connection
    connection.begin_transaction(joinable: false, _lazy: false)
    yield
  ensure
    connection.rollback_transaction
  end

  it "refuses what a server refuses (B02, B03, B12)" do
    stub.hold("alice", type: :USERNAMES)
    stub.hold("bob", type: :USERNAMES, busy: true)
    details = %w[ALICE bob].to_h { |name| [name, User.create(username: name).errors.details] }
    details["a b"] = User.create(username: "a b").errors.details

    expect(details.transform_values { |errors| errors[:username].first[:error] })
      .to eq("ALICE" => :taken, "bob" => :busy, "a b" => :invalid)
    expect(User.count).to eq(0)
    expect(stub.updates).to be_empty
  end

  it "keeps claims and leases as a server does, for the client and for reconciliation (B20, B30, B31)" do
    User.create!(username: "alice").update!(username: "bob")
    lease = Leasehold.client.begin_update(creates: [username("carol")])

    expect(claimed(User, :username)).to eq(%w[bob carol])
    expect(Leasehold.client.get_record(4, "bob")).to have_attributes(cell_id: 1, status: :ACTIVE, lease_uuid: nil)
    expect(outstanding_leases).to eq([lease.uuid])
    reconcile
    expect(claimed(User, :username)).to eq(%w[bob])
  end

  it "lists records and corrects claims for verification" do
    User.insert_all([{ username: "alice", created_at: 1.day.ago, updated_at: 1.day.ago }])
    Leasehold::VerifyJob.perform_now("User")

    expect(claimed(User, :username)).to eq(["alice"])
    expect(stub.updates.flat_map(&:first).map(&:bucket_value)).to include("alice")
  end

  it "compares the organization of a repeated begin (B09)" do
    begin_for = ->(id) { Leasehold.client.begin_update(creates: [username("alice")], organization_id: id, idempotency_key: "key") }
    lease = begin_for.call(42)

    expect(begin_for.call(42)).to eq(lease)
    [43, nil].each { |other| expect { begin_for.call(other) }.to raise_error(Leasehold::Error, /`organization_id`/) }
  end

  it "pages through leases" do
    uuids = %w[a b c].map { |name| Leasehold.client.begin_update(creates: [username(name)]).uuid }
    first = Leasehold.client.list_leases(limit: 2)
    second = Leasehold.client.list_leases(limit: 2, cursor: first.cursor, created_after: first.server_time - 60)

    expect((first.leases + second.leases).map(&:uuid)).to eq(uuids)
    expect(second.cursor).to be_nil
  end

  it "answers a repeated begin with the same lease (B09, B13)" do
    begins = Array.new(2) { Leasehold.client.begin_update(creates: [username("alice")], idempotency_key: "once") }

    expect(begins.uniq.size).to eq(1)
    expect(begins.first.fence).to be_positive
    expect(stub.updates.size).to eq(1)
  end

  it "is unreachable while it is stopped" do
    stub.stop
    expect(User.create(username: "alice").errors.details[:base]).to eq([{ error: :claims_unavailable }])
    stub.start
    expect(User.create(username: "alice")).to be_persisted
  end

  it "publishes the client's events, and needs no settings of a server" do
    Leasehold.configuration.address = Leasehold.configuration.cell_id = nil

    expect(calls { User.create!(username: "alice") }).to eq(
      [{ call: :begin_update, creates: 2, destroys: 0, code: "OK" }, { call: :commit_update, code: "OK" }]
    )
  end

  it "takes the time that `travel_to` sets" do
    extend ActiveSupport::Testing::TimeHelpers
    travel_to(Time.utc(2030)) { expect(Leasehold.client.list_leases.server_time).to eq(Time.utc(2030)) }
  end

  it "gives the same answers as the server" do
    same = Support::ClaimsServer.run do |real|
      [client_of(real.address), stub.client].map { |client| conversation(client) }
    end

    expect(same.first).to eq(same.last)
  end

  # Calls the client, and returns the results without ids and times.
  def conversation(client)
    claim = username("alice")
    steps = [
      -> { client.begin_update(creates: [claim, username("bob", id: 8)]) },
      -> { client.begin_update(creates: [claim]) },
      -> { client.begin_update(creates: []) },
      -> { client.begin_update(creates: [username("x y")], destroys: [username("nobody")]) },
      -> { client.commit_update(client.list_leases.leases.first.uuid) },
      -> { client.rollback_update(client.begin_update(destroys: [claim]).uuid) },
      -> { client.begin_update(creates: [username("alice", id: 9)]) },
      -> { client.commit_update(SecureRandom.uuid) },
      -> { client.list_records(source_type: 1, bucket_types: [4], after: claim.source_id).records },
      -> { client.list_records(source_type: 1, bucket_types: [4]).records }
    ]
    steps.map { |step| plain { step.call } }
  end

  def plain
    result = yield
    Array(result).map { |record| record.is_a?(Leasehold::Record) ? [record.claim.to_h, record.cell_id, record.status] : record.class }
  rescue Leasehold::Error => error
    [error.class, error.code, error.message, error.rejected.map(&:to_a).sort_by(&:inspect), error.retry_after_seconds]
  end

  describe "for a group of tests" do
    let!(:group_server) do
      Leasehold::TestHelp::Replacements.end_test(self)
      stub_claims_server
    end

    after { Leasehold::TestHelp::Replacements.remove(:group) }

    def names
      claimed(User, :username)
    end

    it "loses the claims of transactions that are rolled back, at any depth" do
      rolled_back do
        User.create!(username: "group")
        rolled_back do
          User.create!(username: "inner")
          expect(names).to eq(%w[group inner])
        end
        expect([names, group_server.updates.size]).to eq([%w[group], 1])
        rolled_back { User.create!(username: "inner") }
      end

      expect([names, group_server.updates]).to eq([[], []])
    end

    it "follows the transactions of several databases, in any order" do
      pools = [ActiveRecord::Base, KeysRecord].map(&:connection)
      [pools, pools.reverse].each do |order|
        pools.first.begin_transaction(joinable: false, _lazy: false)
        User.create!(username: "alice")
        pools.last.begin_transaction(joinable: false, _lazy: false)
        Key.create!(fingerprint: "f", user_id: 1)
        order.each(&:rollback_transaction)

        expect([names, claimed(Key, :fingerprint)]).to eq([[], []])
      end
    end

    it "keeps the claims of transactions that are committed" do
      connection = ActiveRecord::Base.connection
      connection.begin_transaction(joinable: false, _lazy: false)
      User.create!(username: "alice")
      connection.commit_transaction

      expect(names).to eq(["alice"])
    end

    it "is copied for each test" do
      User.create!(username: "group")
      Leasehold::TestHelp::Replacements.begin_test(self)
      User.create!(username: "test")
      expect(stub_claims_server).not_to eq(group_server)
      expect(names).to eq(%w[group test])
      restore_leasehold

      expect(names).to eq(["group"])
    end
  end
end
