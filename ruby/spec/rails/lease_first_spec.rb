# frozen_string_literal: true

require "rails_helper"

RSpec.describe "a lease begun before BEGIN", :rails do
  # @return [Array] calls to the server, and statements that begin and end transactions, in order
  def steps
    seen = []
    watch = lambda do |name, _start, _finish, _id, payload|
      word = name == "sql.active_record" ? payload[:sql] : name.delete_suffix("_update.leasehold")
      seen << word if %w[BEGIN COMMIT ROLLBACK begin commit rollback].include?(word)
    end
    ActiveSupport::Notifications.subscribed(watch, /leasehold|sql\.active_record/) { yield }
    seen
  end

  it "keeps network calls out of the transaction" do
    seen = steps { expect(Leasehold.claiming { |claims| claims.save(User.new(username: "alice")) }).to be(true) }

    expect(seen).to eq(%w[begin BEGIN COMMIT commit])
    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "covers several new and existing records" do
    old = User.create!(username: "old")
    changed = User.create!(username: "changed").tap { |user| user.username = "new" }
    user = User.new(username: "alice")
    email = Email.new(email: "a@example.com", user: user)
    seen = steps { Leasehold.claiming! { |claims| claims.save(user, email, changed).destroy(old) } }

    expect(seen).to eq(%w[begin BEGIN COMMIT commit])
    expect(claimed(User, :username)).to eq(%w[alice new])
    expect(records(Email, :email).map { |record| record.claim.subject_id }).to eq([user.id])
  end

  it "leaves changes of callbacks and associations to a lease before COMMIT" do
    user = User.new(username: "alice", emails: [Email.new(email: "a@example.com")])
    seen = steps { Leasehold.claiming! { |claims| claims.save(user) } }

    expect(seen).to eq(%w[begin BEGIN begin COMMIT commit commit])
    expect(claimed(Email, :email)).to eq(["a@example.com"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "opens no transaction if claims are refused" do
    as_cell(2) { User.create!(username: "alice") }
    user = User.new(username: "alice")
    seen = steps { expect(Leasehold.claiming { |claims| claims.save(user) }).to be(false) }

    expect(seen).to eq(["begin"])
    expect(user.errors.full_messages).to eq(["Username has already been taken"])
    expect(user.id).to be_nil
    expect { Leasehold.claiming! { |claims| claims.save(user) } }.to raise_error(Leasehold::ClaimsRejected)
  end

  describe "after a refusal, on the second try" do
    def refused
      lease = as_cell(2) { Leasehold.client.begin_update(creates: [Support::Claims.username("alice")]) }
      yield
    ensure
      as_cell(2) { Leasehold.client.rollback_update(lease.uuid) }
    end

    {
      "named by the one that belongs" => ->(user) { Email.new(user: user, email: "a@example.com") },
      "built by the one that it belongs to" => ->(user) { user.emails.build(email: "a@example.com") }
    }.each do |how, make|
      it "saves an email with the user's current key, #{how}" do
        user = User.new(username: "alice")
        email = make.call(user)
        refused { expect(Leasehold.claiming { |claims| claims.save(user, email) }).to be(false) }
        expect([user.id, email.user_id]).to eq([nil, nil])

        expect(Leasehold.claiming { |claims| claims.save(user, email) }).to be(true)
        expect(Email.find(email.id).user).to eq(user)
        expect(records(Email, :email).map { |record| record.claim.subject_id }).to eq([user.id])
      end
    end

    it "saves the user with the email if only the email is named" do
      email = Email.new(user: User.new(username: "alice"), email: "a@example.com")
      refused { Leasehold.claiming { |claims| claims.save(email.user, email) } }

      expect(email.save).to be(true)
      expect(Email.find(email.id).user).to eq(User.find_by!(username: "alice"))
    end
  end

  it "keeps a foreign key that was set to nil, though its target is loaded" do
    stub_const("OwnedKey", Class.new(Key) do
      belongs_to :user, optional: true
      cells_claims_metadata subject_type: :USER, subject_key: :id
    end)
    key = OwnedKey.create!(fingerprint: "SHA256:abc", user: User.create!(username: "alice"))
    key = OwnedKey.find(key.id).tap(&:user)
    key.user_id = nil

    expect(Leasehold.claiming { |claims| claims.save(key) }).to be(true)
    expect(Key.find(key.id).user_id).to be_nil
  end

  it "covers only records whose keys are known before the INSERT" do
    ActiveRecord::Base.connection.execute(<<~SQL)
      CREATE TABLE snippets (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, owner_id bigint)
    SQL
    snippet = stub_const("Snippet", Class.new(ApplicationRecord) do
      include Cells::Claimable
      belongs_to :owner, class_name: "Snippet", optional: true
      cells_claims_attribute :name, type: :USERNAMES, feature_flag: :snippets
      cells_claims_metadata subject_type: :USER, subject_key: :owner_id, source_type: :RAILS_TABLE_PROJECTS
    end)
    first = snippet.new(name: "first", owner_id: 7)
    second = snippet.new(name: "second", owner: first)
    Leasehold.claiming! { |claims| claims.save(User.new(username: "alice"), first, second) }

    expect(records(snippet, :name).map { |record| record.claim.subject_id }).to eq([7, first.id])
    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  ensure
    ActiveRecord::Base.connection.execute("DROP TABLE snippets")
  end

  it "calls no server for an invalid record" do
    seen = steps { expect(Leasehold.claiming { |claims| claims.save(User.new(username: "")) }).to be(false) }

    expect(seen).to be_empty
  end

  it "is postponed until the row is locked if a claim to destroy does not exist, since verification may create it" do
    insert_users = "INSERT INTO users (id, username, created_at, updated_at) VALUES (1, 'alice', now(), now() - interval '1 day')"
    ActiveRecord::Base.connection.execute(insert_users)
    claimed_meanwhile = false
    user = User.find(1)
    user.username = "robert"
    subscriber = lambda do |*, payload|
      next if claimed_meanwhile || payload[:code] != "CLAIM_NOT_FOUND"

      claimed_meanwhile = true
      Leasehold::Verifier.new(User).run
    end
    Leasehold.configuration.recent_within_seconds = 0.001
    ActiveSupport::Notifications.subscribed(subscriber, "begin_update.leasehold") do
      expect(Leasehold.claiming { |claims| claims.save(user) }).to be(true)
    end

    expect(claimed_meanwhile).to be(true)
    expect(claimed(User, :username)).to eq(["robert"])
    expect(outstanding_leases + lease_rows).to be_empty
  ensure
    Leasehold.configuration.recent_within_seconds = 3600
  end

  it "is rolled back with the transaction" do
    failing = Class.new(User) { after_save { raise ActiveRecord::RecordNotSaved, "no" } }
    user = failing.new(username: "alice")
    seen = steps { expect(Leasehold.claiming { |claims| claims.save(user) }).to be(false) }

    expect(seen).to eq(%w[begin BEGIN ROLLBACK rollback])
    expect(user.id).to be_nil
    expect(claimed(User, :username) + outstanding_leases).to be_empty
  end

  it "is rolled back if a callback changes a claim that it covers" do
    renaming = Class.new(User) { before_save { self.username = "other" } }
    expect { Leasehold.claiming { |claims| claims.save(renaming.new(username: "alice")) } }
      .to raise_error(Leasehold::Error::Internal, /callback/)

    expect(User.count).to eq(0)
    expect(claimed(User, :username) + outstanding_leases).to be_empty
  end

  it "is refused within a transaction, and for records of several databases" do
    user = User.new(username: "alice")
    expect { User.transaction { Leasehold.claiming { |claims| claims.save(user) } } }
      .to raise_error(ActiveRecord::TransactionIsolationError)
    expect { Leasehold.claiming { |claims| claims.save(user, Key.new) } }.to raise_error(ArgumentError, /several databases/)
    expect { Leasehold.claiming { |_claims| nil } }.to raise_error(ArgumentError, /names no record/)
    expect { Leasehold.claiming { |claims| claims.save(nil) } }.to raise_error(ArgumentError, /NilClass is not a record/)
    expect { Leasehold.claiming { |claims| claims.save([user]) } }.to raise_error(ArgumentError, /Array is not a record: .*`\*list`/)
  end
end
