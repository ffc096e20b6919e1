# frozen_string_literal: true

require "rails_helper"

RSpec.describe "conditions of claims", :rails do
  around do |example|
    example.run
  ensure
    Leasehold.configuration.feature_enabled { true }
  end

  def disable(*flags)
    Leasehold.configuration.feature_enabled { |flag| flags.exclude?(flag) }
  end

  it "claims nothing while the global flag is off" do
    disable(:cells_unique_claims)

    expect(calls { User.create!(username: "alice") }).to be_empty
    expect(User.cells_claims_enabled_for_attribute?(:username)).to be(false)
  end

  it "claims by the attribute's own flag" do
    disable(:cells_claims_emails)
    user = User.create!(username: "alice", emails: [Email.new(email: "a@example.com")])

    expect(claimed(User, :username)).to eq(["alice"])
    expect(claimed(Email, :email)).to be_empty
    expect(user.cells_claims_enabled_for_attribute?(:username)).to be(true)
    expect(user.emails.first.cells_claims_enabled_for_attribute?(:email)).to be(false)
    expect(user.cells_claims_enabled_for_attribute?(:created_at)).to be(false)
  end

  it "asks each flag once per save, so that all steps of the save agree" do
    asked = []
    Leasehold.configuration.feature_enabled { |flag| asked << flag }
    user = User.create!(username: "alice")
    expect(asked).to match_array(%i[cells_unique_claims cells_claims_users])

    [-> { user.update!(username: "bob") }, -> { user.destroy! }].each do |write|
      asked.clear
      write.call
      expect(asked.tally.values.uniq).to eq([1])
    end
  end

  describe "with `if:`" do
    let(:user) { User.create!(username: "alice") }

    it "creates a claim only if the condition is true" do
      %w[top top/below].each { |path| Route.create!(path: path, user: user) }

      expect(claimed(Route, :path)).to eq(["top"])
    end

    it "destroys the old claim on update whatever the condition returns now, and creates one only if it is true" do
      route = Route.create!(path: "top", user: user)
      route.update!(path: "top/below")
      expect(claimed(Route, :path)).to be_empty

      route.update!(path: "other/below")
      expect(claimed(Route, :path)).to be_empty

      route.update!(path: "other")
      expect(claimed(Route, :path)).to eq(["other"])
    end

    it "destroys the claim with the record only if the condition is true" do
      below = Route.create!(path: "top/below", user: user)
      top = Route.create!(path: "top", user: user)

      expect(calls { below.destroy! }).to be_empty
      expect(calls { top.destroy! }).not_to be_empty
      expect(claimed(Route, :path)).to be_empty
    end

    it "leaves a value out of the record's metadata if the condition is false" do
      expect(Route.new(id: 1, path: "top/below").cells_claims).to be_empty
      expect(Route.new(id: 1, path: "top", user_id: 5).cells_claims).to contain_exactly(
        have_attributes(bucket_value: "top", subject_id: 5, source_id: [1].pack("Q>"))
      )
    end
  end

  it "infers the source type from the table's name, unless declared" do
    declared = Class.new(User) do
      cells_claims_metadata subject_type: 4, subject_key: :id, source_type: Cells::Claimable::CLAIMS_SOURCE_TYPE::RAILS_TABLE_MEMBERS
    end
    unknown = Class.new(User) { self.table_name = "gadgets" }

    expect(User.cells_claims_source_type).to eq(Cells::Claimable::CLAIMS_SOURCE_TYPE::RAILS_TABLE_USERS)
    expect(declared.cells_claims_source_type).to eq(Cells::Claimable::CLAIMS_SOURCE_TYPE::RAILS_TABLE_MEMBERS)
    expect { unknown.cells_claims_source_type }.to raise_error(Leasehold::Error::Misconfigured, /gadgets.*source_type/)
  end

  it "has a scope of all rows, unless declared" do
    user = User.create!(username: "alice")
    %w[top top/below].each { |path| Route.create!(path: path, user: user) }

    expect(Route.cells_claims_scope.pluck(:path)).to eq(["top"])
    expect(User.cells_claims_scope).to contain_exactly(user)
  end

  it "never claims nil" do
    expect(calls { Key.create!(user_id: 1) }).to be_empty
  end

  it "builds metadata with which a job destroys the claim of a deleted record" do
    user = User.create!(username: "alice")
    metadata = user.build_destroy_metadata_for_worker(:username)

    expect(JSON.parse(metadata.to_json)).to eq(metadata)
    expect(metadata).to eq(
      "bucket_type" => 4, "bucket_value" => "alice", "subject_type" => 4, "subject_id" => user.id, "source_type" => 1,
      "primary_key" => user.id
    )
    expect(Route.new(id: 1, path: "top/below").build_destroy_metadata_for_worker(:path)).to be_nil
  end
end
