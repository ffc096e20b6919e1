# frozen_string_literal: true

require "rails_helper"

RSpec.describe "refused claims", :rails do
  def hold(username)
    as_cell(2) { User.create!(username: username) }
  end

  # Leaves the bucket under a lease of the other cell.
  def lease(username)
    as_cell(2) { Leasehold.client.begin_update(creates: [User.new(id: 99, username: username).cells_claims.last]) }
  end

  def expect_usable_connection
    expect(ActiveRecord::Base.connection).not_to be_transaction_open
    expect(User.create!(username: "someone else")).to be_persisted
  rescue ActiveRecord::RecordInvalid
    expect(User.create!(username: "someone-else")).to be_persisted
  end

  it "become errors on the attribute, in Rails' own words (B02)" do
    hold("alice")
    user = User.new(username: "Alice")

    expect(user.save).to be(false)
    expect(user.errors.to_hash).to eq(username: ["has already been taken"])
    expect(user).to be_new_record
    expect(user.id).to be_nil
    expect(User.count + lease_rows.size + outstanding_leases.size).to eq(0)
    expect_usable_connection
  end

  it "raise RecordInvalid from `save!`, with the reason" do
    hold("alice")

    expect { User.create!(username: "alice") }.to raise_error(ActiveRecord::RecordInvalid, /Username has already been taken/) { |error|
      expect(error.record).to be_a(User)
      expect(error).to have_attributes(temporary?: false, error: Leasehold::Error::Taken)
    }
    expect_usable_connection
  end

  it "become an error on the second of two records that claim one name in a transaction (B07)" do
    users = %w[alice bob Alice].map { |name| User.new(username: name) }

    expect { User.transaction { users.each(&:save!) } }.to raise_error(Leasehold::ClaimsRejected) { |error|
      expect(error).to have_attributes(record: users.last, records: [users.last], temporary?: false)
    }
    expect(users.map { |user| user.errors.to_hash }).to eq([{}, {}, { username: ["has already been taken"] }])
    expect(User.count).to eq(0)
  end

  it "become an error on an attribute whose value another attribute of the row claims (B07)" do
    ActiveRecord::Base.connection.execute("ALTER TABLE emails ADD COLUMN unconfirmed text")
    stub_const("Address", Class.new(ApplicationRecord) do
      self.table_name = "emails"
      include Cells::Claimable
      %i[email unconfirmed].each { |name| cells_claims_attribute name, type: :EMAILS, feature_flag: :cells_claims_emails }
      cells_claims_metadata subject_type: :USER, subject_key: :user_id
    end)
    row = Address.create!(user_id: 7, email: "a@example.com")

    expect(row.update(unconfirmed: "A@example.com")).to be(false)
    expect(row.errors.to_hash).to eq(unconfirmed: ["has already been taken"])
    row.reload.update!(email: "b@example.com", unconfirmed: "a@example.com")
    row.update!(email: row.unconfirmed, unconfirmed: nil)
    expect(claimed(Address, :email)).to eq(["a@example.com"])
  ensure
    ActiveRecord::Base.connection.execute("ALTER TABLE emails DROP COLUMN unconfirmed")
  end

  it "have the value in the error's details, as Rails' own errors have" do
    hold("alice")
    taken, invalid = ["Alice", "two\nlines"].map { |name| User.new(username: name).tap(&:save) }

    expect(taken.errors.details).to eq(username: [{ error: :taken, value: "Alice" }])
    expect(invalid.errors.details).to eq(username: [{ error: :invalid, value: "two\nlines" }])
  end

  it "become a `busy` error while another update is in progress (B03)" do
    lease("alice")
    user = User.new(username: "alice")

    expect(user.save).to be(false)
    expect(user.errors.details).to eq(username: [{ error: :busy, value: "alice" }])
    expect(user.errors.full_messages).to eq(["Username is being changed elsewhere, try again"])
    I18n.with_locale(:de) { expect(user.errors.full_messages.first).to include("bitte erneut versuchen") }
  end

  it "of a nested record are copied to the saved record, with the association's name" do
    as_cell(2) { User.create!(username: "alice", emails: [Email.new(email: "a@example.com")]) }
    user = User.new(username: "bob", emails: [Email.new(email: "a@example.com")])

    expect(user.save).to be(false)
    expect(user.errors.to_hash).to eq("emails.email": ["has already been taken"])
    expect(user.emails.first.errors.to_hash).to eq(email: ["has already been taken"])
    expect(User.count + Email.count).to eq(0)
  end

  it "are reported on the saved record and on its nested records, if both are refused" do
    as_cell(2) { User.create!(username: "alice", emails: [Email.new(email: "a@example.com")]) }
    user = User.new(username: "alice", emails: [Email.new(email: "a@example.com")])

    expect { user.save! }.to raise_error(ActiveRecord::RecordInvalid, /Username has already been taken, Emails email has/)
    expect(user.errors.to_hash).to eq(username: ["has already been taken"], "emails.email": ["has already been taken"])
  end

  it "are reported on the saved record if no answer came, whichever claims come first" do
    server.kill
    email = Email.new(email: "a@example.com", user: User.new(username: "alice"))

    expect(email.save).to be(false)
    expect(email.errors.details).to eq(base: [{ error: :claims_unavailable }])
  end

  describe "of records that were saved along" do
    before { as_cell(2) { User.create!(username: "taken", emails: [Email.new(email: "a@example.com")]) } }

    # @return [Array<String>] the statements that read from a table
    def reads
      seen = []
      ActiveSupport::Notifications.subscribed(->(*, payload) { seen << payload[:name] }, "sql.active_record") { yield }
      seen.grep(/Load/)
    end

    it "are reported though the association was never loaded, and load nothing" do
      user = User.create!(username: "bob")
      user = User.find(user.id)
      user.emails.build(email: "a@example.com")

      expect(reads { expect(user.save).to be(false) }).to be_empty
      expect(user.errors.to_hash).to eq("emails.email": ["has already been taken"])
    end

    it "are reported through the parents that were saved with them" do
      email = Email.new(email: "b@example.com", user: User.new(username: "taken"))
      sibling = Route.new(path: "r", user: User.new(username: "bob", emails: [Email.new(email: "a@example.com")]))

      expect([email.save, sibling.save]).to eq([false, false])
      expect(email.errors.to_hash).to eq("user.username": ["has already been taken"])
      expect(sibling.errors.to_hash).to eq("user.emails.email": ["has already been taken"])
    end

    it "name their attribute in the message if no association leads to them" do
      stub_const("Visitor", Class.new(User) { after_create { Email.create!(email: "a@example.com", user_id: id) } })
      user = Visitor.new(username: "bob")

      expect(user.save).to be(false)
      expect(user.errors.full_messages).to eq(["Email has already been taken"])
      expect(user.errors.details).to eq(base: [{ error: :taken, value: "a@example.com" }])
    end
  end

  describe "with nested records marked for destruction" do
    before { hold("taken") }

    let(:model) do
      stub_const("Author", Class.new(User) do
        has_one :route, foreign_key: :user_id, inverse_of: :user
        accepts_nested_attributes_for :emails, :route, allow_destroy: true
      end)
    end

    let(:author) do
      emails = %w[a b c].map { |name| Email.new(email: "#{name}@example.com") }
      model.create!(username: "alice", emails: emails, route: Route.new(path: "a"))
    end

    def refuse_to_destroy
      middle = author.emails[1]
      marked = [middle, author.route].map { |record| { id: record.id, _destroy: "1" } }
      expect(author.update(username: "taken", emails_attributes: marked.first(1), route_attributes: marked.last)).to be(false)
      middle
    end

    it "leave the records marked and in place" do
      middle = refuse_to_destroy

      expect(author.emails.to_a.map(&:email)).to eq(%w[a b c].map { |name| "#{name}@example.com" })
      expect(author.emails[1]).to be(middle).and be_marked_for_destruction.and be_persisted
      expect(author.route).to be_marked_for_destruction.and be_persisted
    end

    it "let the corrected record destroy them" do
      refuse_to_destroy

      expect(author.update(username: "bob")).to be(true)
      expect(Email.pluck(:email)).to match_array(%w[a@example.com c@example.com])
      expect(Route.count).to eq(0)
      expect(claimed(Email, :email)).to eq(%w[a@example.com c@example.com])
      expect(author.emails.to_a.size).to eq(2)
    end
  end

  it "do not take a record's owner away if the owner is marked for destruction" do
    ActiveRecord::Base.connection.execute("ALTER TABLE emails ALTER user_id DROP NOT NULL")
    stub_const("Owner", Class.new(ApplicationRecord) { self.table_name = "users" })
    stub_const("Address", Class.new(ApplicationRecord) do
      self.table_name = "emails"
      include Cells::Claimable
      cells_claims_attribute :email, type: :EMAILS, feature_flag: :cells_claims_emails
      cells_claims_metadata subject_type: :USER, subject_key: :id
      belongs_to :owner, optional: true, foreign_key: :user_id
      accepts_nested_attributes_for :owner, allow_destroy: true
    end)
    as_cell(2) { User.create!(username: "bob", emails: [Email.new(email: "taken@example.com")]) }
    owner = Owner.create!(username: "alice")
    address = Address.create!(email: "a@example.com", owner: owner)
    made = calls do
      expect(address.update(email: "taken@example.com", owner_attributes: { id: owner.id, _destroy: "1" })).to be(false)
    end

    expect(made).not_to be_empty
    expect(address.owner).to be(owner).and be_marked_for_destruction
    expect(address.user_id).to eq(owner.id)
  ensure
    ActiveRecord::Base.connection.execute("DELETE FROM emails; ALTER TABLE emails ALTER user_id SET NOT NULL")
  end

  it "do not take the marked owner away if the foreign key has several columns", if: Support::RailsVersions.since?("7.1") do
    connection = ActiveRecord::Base.connection
    connection.execute("CREATE TABLE owners (shop_id bigint, id bigint, PRIMARY KEY (shop_id, id)); INSERT INTO owners VALUES (1, 2);" \
                       "CREATE TABLE parcels (id bigserial PRIMARY KEY, name text, shop_id bigint, owner_id bigint)")
    stub_const("Owner", Class.new(ApplicationRecord) { self.table_name = "owners" })
    stub_const("Parcel", Class.new(ApplicationRecord) do
      self.table_name = "parcels"
      include Cells::Claimable
      cells_claims_attribute :name, type: :USERNAMES, feature_flag: :cells_claims_users
      cells_claims_metadata subject_type: :USER, subject_key: :id, source_type: :RAILS_TABLE_USERS
      # Rails 7.1 calls the option `query_constraints`.
      belongs_to :owner, optional: true, (Support::RailsVersions.since?("7.2") ? :foreign_key : :query_constraints) => %i[shop_id owner_id]
      accepts_nested_attributes_for :owner, allow_destroy: true
    end)
    hold("taken")
    parcel = Parcel.create!(name: "parcel", owner: Owner.first)

    expect(parcel.update(name: "taken", owner_attributes: { id: [1, 2], _destroy: "1" })).to be(false)
    expect([parcel.shop_id, parcel.owner_id]).to eq([1, 2])
    expect(parcel.owner).to be_marked_for_destruction
    expect(Leasehold.claiming { |claims| claims.save(Parcel.new(name: "other", owner: Owner.first)) }).to be(true)
  ensure
    connection.execute("DROP TABLE owners, parcels")
  end

  it "are returned as errors by methods without a bang that find or create" do
    hold("alice")
    %i[find_or_create_by create_or_find_by].each do |method|
      user = User.public_send(method, username: "alice") { |record| record.created_at = Time.utc(2001) }

      expect(user).to be_new_record.and have_attributes(created_at: Time.utc(2001))
      expect(user.errors).to be_of_kind(:username, :taken)
      expect { User.public_send("#{method}!", username: "alice") }.to raise_error(Leasehold::ClaimsRejected)
      expect { User.transaction { User.public_send(method, username: "alice") } }.to raise_error(Leasehold::ClaimsRejected)
    end
    expect(User.count).to eq(0)
    expect_usable_connection
  end

  it "roll back the outermost transaction and leave it as an exception" do
    hold("alice")
    user = User.new(username: "alice")

    expect { User.transaction { user.save! && User.create!(username: "bob") } }.to raise_error(Leasehold::ClaimsRejected)
    expect(user.errors).to be_of_kind(:username, :taken)
    expect(User.count).to eq(0)
    expect_usable_connection
  end

  it "leave an updated record unchanged, to be corrected and saved" do
    hold("alice")
    user = User.create!(username: "bob")

    expect(user.update(username: "alice")).to be(false)
    expect(user.reload.username).to eq("bob")
    expect(user.update(username: "carol")).to be(true)
    expect(claimed(User, :username)).to eq(["carol"])
  end

  it "keep the record from being destroyed" do
    user = User.create!(username: "alice")
    Leasehold.client.begin_update(destroys: user.cells_claims)

    expect { user.destroy }.to raise_error(Leasehold::ClaimsUnavailable) { |error| expect(error.retry_after).to be >= 1 }
    expect(user.errors.details[:username]).to eq([{ error: :busy, value: "alice" }])
    expect { user.destroy! }.to raise_error(Leasehold::ClaimsUnavailable)
    expect(User.exists?(user.id)).to be(true)
    expect_usable_connection
  end

  it "of claims to destroy are ignored if the claim was never created, or is another row's or cell's (B04, B05)" do
    hold("other-cells")
    %w[never-claimed other-cells].each do |name|
      User.insert({ username: name, created_at: Time.now, updated_at: Time.now })
      User.find_by!(username: name).update!(username: "new-#{name}")
    end
    moved = User.create!(username: "moved")
    User.insert({ username: "moved", created_at: Time.now, updated_at: Time.now })
    User.where.not(id: moved.id).find_by!(username: "moved").destroy!

    expect(claimed(User, :username)).to eq(%w[moved new-never-claimed new-other-cells])
    expect(as_cell(2) { claimed(User, :username) }).to eq(["other-cells"])
  end

  it "cannot occur for values that no rule allows: their rows can be renamed and destroyed" do
    ["", "in valid"].each do |name|
      2.times { User.insert({ username: name, created_at: Time.now, updated_at: Time.now }) }
      first, second = User.where(username: name).to_a
      first.update!(username: "now-valid#{first.id}")
      second.destroy!
    end

    expect(claimed(User, :username)).to match_array(User.pluck(:username))
    expect(User.count).to eq(2)
  end

  it "cannot occur for rows without a subject" do
    2.times { |number| Email.insert({ email: "#{number}@example.com", user_id: 0, created_at: Time.now, updated_at: Time.now }) }
    first, second = Email.order(:email).to_a
    first.update!(user: User.create!(username: "alice"))
    second.destroy!

    expect(claimed(Email, :email)).to eq(["0@example.com"])
  end

  it "cannot occur for rows whose keys have no source id" do
    User.insert({ id: -5, username: "alice", created_at: Time.now, updated_at: Time.now })

    expect(User.find(-5).update!(created_at: Time.now)).to be(true)
    expect(User.find(-5).destroy).to be_destroyed
  end

  describe "of a row that was written without callbacks" do
    let!(:user) { User.create!(username: "alice") }

    before { User.update_all(username: "bob") }

    it "become a replace if the row still owns the claim" do
      expect(user.reload.update(username: "Alice")).to be(true)
      expect(claimed(User, :username)).to eq(["Alice"])

      User.update_all(username: "carol")
      user.reload.username = "alice"
      expect(Leasehold.claiming { |claims| claims.save(user) }).to be(true)
      expect(claimed(User, :username)).to eq(["alice"])
      expect(outstanding_leases + lease_rows).to be_empty
    end

    it "are reported if another row or cell owns the claim, and at once for new rows" do
      User.insert({ username: "dave", created_at: Time.now, updated_at: Time.now })
      as_cell(2) { User.create!(username: "theirs") }
      other = User.find_by!(username: "dave")
      %w[alice theirs].each do |name|
        expect(other.reload.update(username: name)).to be(false)
        expect(other.errors.details[:username]).to eq([{ error: :taken, value: name }])
      end
      begun = calls { expect(User.new(username: "alice").save).to be(false) }

      expect(begun.map { |call| call[:call] }).to eq([:begin_update])
      expect(claimed(User, :username)).to eq(["alice"])
    end
  end

  it "need no call if the value's form is not allowed" do
    user = User.new(username: "a\u0000b")
    seen = calls { expect(user).not_to be_valid }

    expect(user.errors.to_hash).to eq(username: ["is invalid"])
    expect(seen).to be_empty
  end

  it "become errors even if validation was skipped" do
    user = User.new(username: "two\nlines")

    expect(user.save(validate: false)).to be(false)
    expect(user.errors).to be_of_kind(:username, :invalid)
  end

  it "stay the client's own errors if the caller is not allowed" do
    Leasehold.configure { |config| config.cell_id = 77 }
    user = User.new(username: "alice")

    expect { user.save }.to raise_error(Leasehold::Error)
    expect(User.count).to eq(0)
  end
end
