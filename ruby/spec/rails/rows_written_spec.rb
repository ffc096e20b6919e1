# frozen_string_literal: true

require "rails_helper"

# Claims follow the statements that write rows, whatever callbacks do before and after them.
RSpec.describe "rows that ActiveRecord writes", :rails do
  # Defines a model of users with callbacks.
  def users(&callbacks)
    stub_const("Person", Class.new(ApplicationRecord) do
      self.table_name = "users"
      include Cells::Claimable
      cells_claims_attribute :username, type: :USERNAMES, feature_flag: :cells_claims_users
      cells_claims_metadata subject_type: :USER, subject_key: :id
      class_eval(&callbacks) if callbacks
    end)
  end

  later = Time.utc(2040)
  touches = {
    "update!" => -> { update!(created_at: later) },
    "save!" => -> { self.created_at = later and save! },
    "update_attribute" => -> { update_attribute(:created_at, later) },
    "reload" => -> { reload },
    "lock!" => -> { lock! },
    "with_lock" => -> { with_lock {} },
    "touch" => -> { touch },
    "clear_changes_information" => -> { clear_changes_information }
  }

  touches.each do |name, touch|
    it "are claimed if an `after_*` callback calls `#{name}`" do
      model = users { %i[after_create after_update].each { |callback| public_send(callback) { instance_exec(&touch) if created_at != later } } }
      person = model.create!(username: "alice")
      expect(claimed(model, :username)).to eq(["alice"])

      person = model.find(person.id)
      model.where(id: person.id).update_all(created_at: Time.utc(2020))
      person.reload.update!(username: "bob")
      expect(claimed(model, :username)).to eq(["bob"])
    end
  end

  it "are claimed if callbacks around them save again" do
    model = users do
      around_save { |_record, save| save.call.tap { update!(created_at: later) if created_at != later } }
      around_create { |_record, create| create.call.tap { update!(username: "#{username}2") } }
    end
    person = model.create!(username: "alice")
    expect(claimed(model, :username)).to eq(["alice2"])

    person.update!(username: "bob", created_at: Time.utc(2020))
    expect(claimed(model, :username)).to eq(["bob"])
  end

  it "are claimed if a callback registered before the concern's own saves again" do
    stub_const("Person", Class.new(ApplicationRecord) do
      self.table_name = "users"
      after_save { update!(created_at: later) if created_at != later }
      include Cells::Claimable
      cells_claims_attribute :username, type: :USERNAMES, feature_flag: :cells_claims_users
      cells_claims_metadata subject_type: :USER, subject_key: :id
    end)
    person = Person.create!(username: "alice")
    person.update!(username: "bob", created_at: Time.utc(2020))

    expect(claimed(Person, :username)).to eq(["bob"])
  end

  describe "as parents and children that save each other" do
    before do
      stub_const("Mutual", Class.new(User) { has_many :letters, class_name: "Letter", foreign_key: :user_id, inverse_of: :user })
      Mutual.accepts_nested_attributes_for :letters
      stub_const("Letter", Class.new(Email) { belongs_to :user, class_name: "Mutual", autosave: true })
    end

    it "are claimed once each" do
      user = Mutual.new(username: "alice", letters_attributes: [{ email: "alice@example.com" }])
      expect(user.save).to be(true)

      expect([claimed(User, :username), claimed(Email, :email)]).to eq([["alice"], ["alice@example.com"]])
    end

    it "are claimed once each in the lease-first mode" do
      user = Mutual.new(username: "alice", letters_attributes: [{ email: "alice@example.com" }])
      Leasehold.claiming! { |claims| claims.save(user, *user.letters) }

      expect([claimed(User, :username), claimed(Email, :email)]).to eq([["alice"], ["alice@example.com"]])
    end
  end

  it "keep the claims of columns that are readonly after creation" do
    model = users { Support::RailsVersions.ignore_writes(self, :username) }
    person = model.create!(username: "alice")
    person.update!(username: "bob", created_at: later)
    person.username = "carol"
    Leasehold.claiming! { |claims| claims.save(person) }

    expect(model.pluck(:username)).to eq(["alice"])
    expect(claimed(model, :username)).to eq(["alice"])
  end

  it "lose the stored row's claims, though a callback assigns to a stale instance" do
    model = users { before_update { self.username = "carol" if created_at == later } }
    person = model.create!(username: "alice")
    stale = model.find(person.id)
    person.update!(username: "bob")
    stale.update!(created_at: later)

    expect(claimed(model, :username)).to eq(["carol"])
  end

  it "claim nothing if the row does not exist" do
    model = users
    person = model.create!(username: "alice")
    model.where(id: person.id).delete_all
    person.update!(username: "bob")

    expect(claimed(model, :username)).to eq(["alice"])
  end

  it "are refused if models write without a transaction" do
    # Replaces the method that opens the transaction of a save. In Rails 8.2 a model can override
    # `implicit_persistence_transaction` instead.
    model = users { define_method(:with_transaction_returning_status) { |&write| write.call } }
    model.transaction { model.create!(username: "alice") }
    expect(claimed(model, :username)).to eq(["alice"])

    expect { model.create!(username: "bob") }.to raise_error(Leasehold::Error::Misconfigured, /without a transaction/)
    user = model.find_by!(username: "alice")
    expect { user.update!(username: "bob") }.to raise_error(Leasehold::Error::Misconfigured, /without a transaction/)
    expect { user.destroy! }.to raise_error(Leasehold::Error::Misconfigured, /without a transaction/)
    expect(model.pluck(:username)).to eq(["alice"])
  end

  it "are claimed if models write all columns" do
    model = users { Support::RailsVersions.write_all_columns(self) }
    person = model.create!(username: "alice")
    stale = model.find(person.id)
    person.update!(username: "bob")
    stale.update!(created_at: later)

    expect(model.pluck(:username)).to eq(["alice"])
    expect(claimed(model, :username)).to eq(["alice"])
  end

  it "follow `if:` if models write all columns and no claim changes" do
    stub_const("Signpost", Class.new(ApplicationRecord) do
      self.table_name = "routes"
      Support::RailsVersions.write_all_columns(self)
      include Cells::Claimable
      cells_claims_attribute :path, type: :ROUTES, feature_flag: :cells_claims_routes, if: ->(route) { route.created_at.year < 2000 }
      cells_claims_metadata subject_type: :USER, subject_key: :user_id
    end)
    post = Signpost.create!(path: "top", user_id: 7, created_at: Time.utc(2020))
    seen = [1990, 1991, 2021, 2022].map do |year|
      made = calls { post.update!(created_at: Time.utc(year)) }
      [claimed(Signpost, :path), made.size]
    end

    # The four updates claim the value, change nothing, destroy the claim, and change nothing. Only a change
    # of the condition's result makes calls: a begin and a commit.
    expect(seen).to eq([[["top"], 2], [["top"], 0], [[], 2], [[], 0]])
  end

  describe "written by instances with other values" do
    let(:owner) { User.create!(username: "alice") }

    it "lose their claims if the stored row was claimed" do
      first, second = %w[a b].map { |path| Route.create!(path: path, user: owner) }
      first.path = "a/c"
      first.destroy!
      stale = Route.find(second.id)
      second.update!(path: "b/c")
      second.update!(path: "b")
      stale.path = "b/c"
      Leasehold.claiming! { |claims| claims.destroy(stale) }

      expect(claimed(Route, :path)).to be_empty
    end

    it "lose their claims though the query cache has an older row" do
      route = Route.create!(path: "a/b", user: owner)
      Route.cache do
        Route.find(route.id)
        Support::Cell[1].query("UPDATE routes SET path = 'a'")
        claim = Route.new(id: route.id, path: "a", user: owner).cells_claims
        Leasehold.client.commit_update(Leasehold.client.begin_update(creates: claim).uuid)
        Route.find(route.id).destroy!
      end

      expect(claimed(Route, :path)).to be_empty
    end

    it "need no call if the stored row was not claimed" do
      route = Route.create!(path: "a/b", user: owner)
      route.path = "a"

      expect(calls { route.destroy! }).to be_empty
    end
  end

  describe "written by instances with some of their columns" do
    let(:owner) { User.create!(username: "alice") }

    it "lose their claims" do
      owner
      Email.create!(email: "a@example.com", user: owner)
      Email.select(:id).first.destroy!
      User.select(:id).find(owner.id).destroy!

      expect(claimed(Email, :email) + claimed(User, :username)).to be_empty
    end

    it "are claimed by the written values and the stored ones" do
      email = Email.create!(email: "a@example.com", user: owner)
      Email.select(:id, :email).find(email.id).update!(email: "b@example.com", user: User.create!(username: "bob"))
      route = Route.create!(path: "a", user: owner)
      Route.select(:id, :user_id).find(route.id).update!(user: User.find_by!(username: "bob"))

      expect(claimed(Email, :email)).to eq(["b@example.com"])
      expect(records(Route, :path).map { |record| record.claim.subject_id }).to eq([User.find_by!(username: "bob").id])
    end
  end

  describe "with a column that decides about the claim" do
    before do
      ActiveRecord::Base.connection.execute(<<~SQL)
        CREATE TABLE snippets (id bigserial PRIMARY KEY, type text, name text, extra text, owner_id bigint DEFAULT 7, hidden boolean DEFAULT false)
      SQL
      stub_const("Piece", Class.new(ApplicationRecord) do
        self.table_name = "snippets"
        include Cells::Claimable
        cells_claims_attribute :name, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :pieces, if: ->(piece) { !piece.hidden }
        cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id, source_type: :RAILS_TABLE_PROJECTS
      end)
      stub_const("GroupPiece", Class.new(Piece) do
        cells_claims_attribute :extra, type: :USERNAMES, feature_flag: :pieces
      end)
    end

    after { ActiveRecord::Base.connection.execute("DROP TABLE snippets") }

    it "are claimed or lose their claims when it changes, with no call otherwise" do
      piece = Piece.create!(name: "one", hidden: true)
      expect(claimed(Piece, :name)).to be_empty
      piece.update!(hidden: false)
      expect(claimed(Piece, :name)).to eq(["one"])
      calls = 0
      subscription = ActiveSupport::Notifications.subscribe("begin_update.leasehold") { calls += 1 }
      piece.update!(extra: "whatever")
      ActiveSupport::Notifications.unsubscribe(subscription)
      expect(calls).to eq(0)
      Piece.find(piece.id).update!(hidden: true)
      expect(claimed(Piece, :name)).to be_empty
    end

    it "become invalid if another cell owns the value to claim" do
      piece = Piece.create!(name: "one", hidden: true)
      as_cell(2) do
        claim = Leasehold::Claim.new(bucket_type: Piece.cells_claims_declarations[:name].type, bucket_value: "one", subject_type: 2,
                                     subject_id: 7, source_type: Piece.cells_claims_source_type, source_id: Leasehold::Native.encode_source_id(99))
        Leasehold.client.commit_update(Leasehold.client.begin_update(creates: [claim], destroys: []).uuid)
      end
      expect(piece.update(hidden: false)).to be(false)
      expect(piece.errors.details[:name]).to include(a_hash_including(error: :taken))
    end

    it "are claimed if they become rows of a class that claims more" do
      piece = Piece.create!(name: "one", extra: "more")
      piece.becomes!(GroupPiece).save!
      expect([claimed(GroupPiece, :name), claimed(GroupPiece, :extra)]).to eq([["one"], ["more"]])
    end
  end

  # @return [Integer] the number of statements that read a table
  def reads_of(table, &block)
    count = 0
    watch = ->(*, payload) { count += 1 if payload[:sql].match?(/\ASELECT .* FROM "#{table}"/) }
    ActiveSupport::Notifications.subscribed(watch, "sql.active_record", &block)
    count
  end

  # Defines a model of the routes, which claims the paths of user 7 only.
  def stub_signpost(type)
    stub_const("Signpost", Class.new(ApplicationRecord) do
      self.table_name = "routes"
      include Cells::Claimable
      cells_claims_attribute :path, type: type, feature_flag: :cells_claims_routes, if: ->(route) { route.user_id == 7 }
      cells_claims_metadata subject_type: :USER, subject_key: :user_id
    end)
  end

  it "are validated when their claims are begun if they were loaded without the columns that `if:` reads" do
    stub_signpost(:USERNAMES)
    claiming, other = [7, 8].map { |user_id| Signpost.create!(path: "path#{user_id}", user_id: user_id) }
    partial = ->(post) { Signpost.select(:id, :path).find(post.id) }

    expect(partial.call(claiming).update(path: "new")).to be(true)
    expect(partial.call(other).update(path: "two words")).to be(true)
    refused = partial.call(claiming)
    expect(refused.update(path: "three little words")).to be(false)
    expect(refused.errors.to_hash).to eq(path: ["is invalid"])
    expect(Signpost.order(:id).pluck(:path)).to eq(["new", "two words"])
    expect(claimed(Signpost, :path)).to eq(["new"])
  end

  it "are read once per statement if `if:` is given" do
    stub_signpost(:ROUTES)
    post = Signpost.create!(path: "top", user_id: 7)
    partial = Signpost.select(:id, :path).find(post.id)
    reads = [-> { post.update!(user_id: 8) }, -> { post.update!(user_id: 7) }, -> { partial.tap { partial.path = "other" }.save!(validate: false) }, -> { post.destroy! }]
            .map { |write| [reads_of("routes", &write), claimed(Signpost, :path)] }

    expect(reads).to eq([[1, []], [1, ["top"]], [1, ["other"]], [1, []]])
  end
end
