# frozen_string_literal: true

require "rails_helper"

# Declarations and answers that code for GitLab's concern relies on.
RSpec.describe "models of GitLab", :rails do
  before do
    ActiveRecord::Base.connection.execute(<<~SQL)
      CREATE TABLE organizations (id bigserial PRIMARY KEY, path text, name text, owner_id bigint, updated_at timestamp)
    SQL
  end

  after do
    ActiveRecord::Base.connection.execute("DROP TABLE organizations")
    settings = Leasehold.configuration
    settings.feature_enabled { true }
    settings.global_feature_flag = :cells_unique_claims
    settings.metadata_form = :bucket
    settings.taken_errors_on = :attribute
    settings.uuid_texts_as_bytes = false
    settings.verification_page_rows = 1000
    settings.recent_within_seconds = 3600
  end

  # Defines a model that claims its path.
  #
  # @yield further declarations, in the model's class
  def organization(subject_key: :id, **options, &rest)
    options = { type: Cells::Claimable::CLAIMS_CLAIM_TYPE::CLAIM_TYPE_ORGANIZATION_PATH, **options }
    stub_const("Organization", Class.new(ApplicationRecord) do
      self.table_name = "organizations"
      include Cells::Claimable
      cells_claims_attribute :path, **options
      cells_claims_metadata subject_type: self::CLAIMS_SUBJECT_TYPE::ORGANIZATION, subject_key: subject_key
      class_eval(&rest) if rest
    end)
  end

  def execute(sql)
    ActiveRecord::Base.connection.execute(sql)
  end

  def verify(model)
    Leasehold.configuration.recent_within_seconds = 0.001
    Leasehold::Verifier.new(model).run
  end

  describe "the type of a claim" do
    it "may be a claim type, by constant or Symbol" do
      [:CLAIM_TYPE_ORGANIZATION_PATH, :ORGANIZATION_PATH, 2].each_with_index do |type, index|
        model = organization(type: type)
        model.create!(path: "path#{index}")
        expect(records(model, :path).map { |record| record.claim.bucket_type }.uniq).to eq([2])
      end
      expect { organization(type: :CLAIM_TYPE_NAME) }.to raise_error(Leasehold::Error::Misconfigured, /`:CLAIM_TYPE_NAME` is not a bucket type/)
    end

    it "names the field of the claim message" do
      fields = Cells::Claimable::CLAIM_FIELD_BY_TYPE
      types = Cells::Claimable::CLAIMS_CLAIM_TYPE

      expect(fields).to include(types::CLAIM_TYPE_USERNAME => :username, types::CLAIM_TYPE_USER_ID => :user_id)
      expect(fields.keys).to match_array(types.constants.map { |name| types.const_get(name) } - [0])
      expect(Cells::Claimable::CLAIMS_CLAIM.new(username: "alice").username).to eq("alice")
    end
  end

  describe "a feature flag" do
    it "is asked only if the attribute has one" do
      asked = []
      Leasehold.configuration.global_feature_flag = nil
      Leasehold.configuration.feature_enabled { |flag| asked << flag && false }
      model = organization
      model.create!(path: "gitlab")

      expect(asked).to be_empty
      expect(claimed(model, :path)).to eq(["gitlab"])
      expect(model.cells_claims_enabled_for_attribute?(:path)).to be(true)
      expect(verify(model)).not_to include(:disabled)
    end

    it "that is global also switches attributes that have no flag of their own" do
      Leasehold.configuration.feature_enabled { |flag| flag != :cells_unique_claims }
      model = organization

      expect(calls { model.create!(path: "gitlab") }).to be_empty
      expect(model.cells_claims_enabled_for_attribute?(:path)).to be(false)
      expect(verify(model)).to include(disabled: true)
    end

    it "must be added before the claims of an attribute can be released" do
      expect { Leasehold::Release.new(organization, :path).run }.to raise_error(
        Leasehold::Error::Misconfigured, /claim the bucket type of `path`: give `path` a `feature_flag:` that is off first/
      )
    end
  end

  describe "a blank value" do
    let(:blank) { [nil, "", "  ", "\u00a0\n"] }

    it "is not claimed, and is no error" do
      model = organization
      expect(calls { blank.each { |path| model.create!(path: path) } }).to be_empty

      record = model.create!(path: "gitlab")
      blank.each do |path|
        record.update!(path: path)
        expect(claimed(model, :path)).to be_empty
        record.update!(path: "gitlab")
        expect(claimed(model, :path)).to eq(["gitlab"])
      end
    end

    it "is not claimed by verification, with a condition or without" do
      [{}, { if: ->(_record) { true } }].each do |options|
        model = organization(**options)
        model.insert_all!(blank.map { |path| { path: path } })
        expect(verify(model)).to include(rows: model.count, created: 0, invalid: 0, failed: 0)
      end
    end

    it "has no metadata" do
      record = organization.create!(path: " ")

      expect(record.cells_claims_metadata).to be_empty
      expect(record.cells_claims_metadata_for_attribute(:path)).to be_nil
      expect(record.build_destroy_metadata_for_worker(:path)).to be_nil
    end
  end

  describe "the scope" do
    it "has the columns of claims, whatever the block selects rows by" do
      expect(organization(subject_key: :owner_id).cells_claims_scope.select_values.map(&:to_s))
        .to contain_exactly("id", "path", "owner_id", "updated_at")
      model = organization { cells_claims_scope { where("strpos(path, '/') = 0") } }
      expect(model.cells_claims_scope.select_values.map(&:to_s)).to contain_exactly("id", "path", "updated_at")
      top, = %w[top top/below].map { |path| model.create!(path: path) }
      expect(model.cells_claims_scope).to contain_exactly(top)
    end

    it "has all columns if a block computes the subject, or the scope selects its own" do
      expect(organization(subject_key: -> { id }).cells_claims_scope.select_values).to be_empty
      expect(organization { cells_claims_scope { select(:id, :name) } }.cells_claims_scope.select_values).to eq(%i[id name])
    end
  end

  describe "the answers of a model" do
    it "are hashes" do
      condition = ->(record) { record.path != "hidden" }
      model = organization(feature_flag: :cells_claims_organizations, if: condition)

      expect(model.cells_claims_attributes).to eq(path: { type: 2, feature_flag: :cells_claims_organizations, if: condition })
      expect([model.cells_claims_subject_key, model.cells_claims_subject_type]).to eq([:id, 1])
    end

    it "list it among all models with claims, anonymous or not" do
      model = organization
      anonymous = Class.new(ApplicationRecord) do
        self.table_name = "organizations"
        include Cells::Claimable
        2.times { cells_claims_attribute :path, type: :ORGANIZATION_PATH }
      end

      expect(Cells::Claimable.models_with_claims).to be_a(Set).and include(model, anonymous, User, Email)
      expect(Cells::Claimable.models_with_claims.count(anonymous)).to eq(1)
    end
  end

  describe "a subject that a block computes" do
    def subjects(model)
      records(model, :path).map { |record| record.claim.subject_id }
    end

    # The owner is set by a trigger, so that only the database knows it.
    def looked_up(**options)
      execute(<<~SQL)
        CREATE OR REPLACE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN NEW.owner_id = coalesce(NULLIF(NEW.name, '')::bigint, 77); RETURN NEW; END $$;
        CREATE TRIGGER own BEFORE INSERT OR UPDATE ON organizations FOR EACH ROW EXECUTE FUNCTION own();
      SQL
      organization(subject_key: -> { self.class.unscoped.where(id: id).pick(:owner_id) }, **options)
    end

    [{}, { if: ->(record) { record.path != "hidden" } }].each do |options|
      it "is looked up by saves#{' with a condition' if options.any?}" do
        model = looked_up(**options)
        record = model.create!(path: "gitlab")
        expect(subjects(model)).to eq([77])

        record.update!(name: "78")
        expect(subjects(model)).to eq([78])
        model.select(:id, :path).find(record.id).update!(path: "other")
        expect([claimed(model, :path), subjects(model)]).to eq([["other"], [78]])
        expect(calls { record.reload.touch }).to be_empty

        record.destroy!
        expect(claimed(model, :path)).to be_empty
      end
    end

    it "is looked up by verification, metadata and the bulk job" do
      model = looked_up
      id = model.insert({ path: "gitlab", name: "79" }).rows.dig(0, 0)
      expect(verify(model)).to include(created: 1, invalid: 0)
      expect(subjects(model)).to eq([79])
      expect(model.find(id).cells_claims_metadata.first[:subject]).to eq(type: 1, id: 79)

      model.update_all(name: "80")
      Leasehold::BulkClaimsJob.perform_now("Organization", "path", "create_record_ids" => [id])
      metadata = model.find(id).build_destroy_metadata_for_worker(:path)
      expect(metadata).to include("subject_id" => 80)
      model.delete_all
      Leasehold::BulkClaimsJob.perform_now("Organization", "path", "destroy_metadata" => [metadata])
      expect(claimed(model, :path)).to be_empty
    end

    it "is claimed within the transaction by `Leasehold.claiming`" do
      model = looked_up
      expect(Leasehold.claiming { |claims| claims.save(model.new(path: "gitlab")) }).to be(true)
      expect(subjects(model)).to eq([77])
    end

    it "must be an id of 1 or more" do
      { -> {} => /the `subject_key` of `Organization` is nil: `path` can only be claimed for a subject id of 1 or more/,
        -> { "7" } => /the `subject_key` of `Organization` is of class String/ }.each do |key, message|
        expect { organization(subject_key: key).create!(path: "gitlab") }.to raise_error(Leasehold::Error, message)
      end
    end

    it "is declared by a Symbol or a Proc" do
      model = organization(subject_key: "id")
      expect { model.create!(path: "gitlab") }
        .to raise_error(ArgumentError, "`Organization`: subject_key must be a Symbol or a Proc, but got: String")
      expect(model.count).to eq(0)
    end
  end

  describe "a record's metadata" do
    let(:expected) do
      { bucket: { type: 2, value: "gitlab" }, subject: { type: 1, id: record.id },
        source: { type: 6, rails_primary_key_id: [record.id].pack("Q>") }, record: record }
    end
    let(:record) { organization.create!(path: "gitlab") }

    it "is a hash for each claim, whatever the flags are" do
      Leasehold.configuration.feature_enabled { false }

      expect(record.cells_claims_metadata).to eq([expected])
      expect(record.cells_claims_metadata_for_attribute(:path)).to eq(expected)
      expect(record.cells_claims_metadata_for_attribute("name")).to be_nil
      expect(Leasehold::Contract::Gitlab::Cells::TopologyService::Claims::V1::Metadata.new(expected.except(:record)).bucket.value).to eq("gitlab")
    end

    it "names the field of a claim message if the setting says so" do
      Leasehold.configuration.metadata_form = :claim

      expect(record.cells_claims_metadata).to eq([expected.except(:bucket).merge(claim: { organization_path: "gitlab" })])
      expect(User.new(id: 7, username: "alice").cells_claims_metadata.map { |metadata| metadata[:claim] })
        .to eq([{ user_id: 7 }, { username: "alice" }])
      expect(record.cells_claims_claim_hash(10, "7")).to eq(user_id: 7)
    end

    it "requires a primary key" do
      expect { organization.new(path: "gitlab").cells_claims_metadata }
        .to raise_error(Cells::Claimable::MissingPrimaryKeyError, "`Organization#id` is nil: save the record first")
    end
  end

  it "pass the primary key to the bulk job, which accepts a source id too" do
    model = organization
    gone = %w[a b].map { |path| model.create!(path: path) }
    metadata = gone.map { |record| record.build_destroy_metadata_for_worker(:path) }
    expect(metadata.first).to include("primary_key" => gone.first.id)
    metadata[1] = metadata[1].except("primary_key").merge("source_id" => format("%016x", gone[1].id))
    model.delete_all
    Leasehold::BulkClaimsJob.perform_now("Organization", "path", JSON.parse({ "destroy_metadata" => metadata }.to_json))

    expect(claimed(model, :path)).to be_empty
  end

  describe "a text primary key that looks like a UUID" do
    let(:uuid) { "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" }
    # One of the UUIDs, as 16 bytes, sorts before all texts, and another after all of them.
    let(:keys) { [uuid, "10eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "group", uuid.upcase, "été", "ffeebc99-9c0b-4ef8-bb6d-6bb9bd380a11"] }
    let(:model) { organization(subject_key: :owner_id).tap(&:reset_column_information) }

    before { execute("ALTER TABLE organizations DROP id, ADD slug text PRIMARY KEY") }

    def source_ids
      records(model, :path).map { |record| record.claim.source_id }
    end

    def packed(key)
      [key.delete("-")].pack("H*")
    end

    it "is its own source id by default" do
      model.create!(slug: uuid, path: "gitlab", owner_id: 7)
      expect(source_ids).to eq([uuid.b])
    end

    it "has the UUID's bytes if the setting says so, from saves to verification" do
      Leasehold.configuration.uuid_texts_as_bytes = true
      Leasehold.configuration.verification_page_rows = 2
      keys.each_with_index { |key, index| model.insert({ slug: key, path: "path#{index}", owner_id: 7 }) }
      model.insert({ slug: "sixteen bytes it", path: "none", owner_id: 7 })
      expect(verify(model)).to include(created: 6, destroyed: 0, failed: 0)
      expect(source_ids).to match_array(keys.map { |key| key.match?(/\A\h{8}-.*[a-z]/) ? packed(key) : key.b })

      model.find(uuid).update!(path: "renamed")
      model.find("été").destroy!
      model.where(slug: "group").update_all(path: "moved")
      expect(verify(model)).to include(created: 1, destroyed: 1, missing: 1, extra: 1, failed: 0, finished: true)
      expect(claimed(model, :path)).to include("renamed", "moved").and have_attributes(size: 5)
      metadata = model.find(uuid).build_destroy_metadata_for_worker(:path)
      expect(metadata).to include("primary_key" => uuid)
      model.where(slug: uuid).delete_all
      Leasehold::BulkClaimsJob.perform_now("Organization", "path", "destroy_metadata" => [metadata])
      expect(claimed(model, :path)).not_to include("renamed")
    end

    it "cannot share its source id with a text of 16 bytes" do
      Leasehold.configuration.uuid_texts_as_bytes = true

      expect { model.create!(slug: "sixteen bytes it", path: "gitlab", owner_id: 7) }.to raise_error(
        Leasehold::Error::Invalid,
        "`Organization#slug` is sixteen bytes it: its 16 bytes are the source id of a UUID, use a key of another length"
      )
    end
  end

  describe "a refused save" do
    before { as_cell(2) { User.create!(username: "theirs") } }

    def save_taken
      User.create!(username: "theirs")
    end

    it "is rescued by the names of GitLab's errors" do
      expect { save_taken }.to raise_error(Cells::TransactionRecord::AlreadyClaimedError) { |error|
        expect(error).to be_a(Leasehold::ClaimsTaken).and be_a(Cells::TransactionRecord::Error).and be_a(ActiveRecord::RecordInvalid)
      }
      lease = as_cell(2) { Leasehold.client.begin_update(creates: [Support::Claims.username("busy", id: 9)]) }
      expect { User.create!(username: "busy") }.to raise_error(Cells::TransactionRecord::Error) { |error|
        expect(error).not_to be_a(Cells::TransactionRecord::AlreadyClaimedError)
      }
      as_cell(2) { Leasehold.client.rollback_update(lease.uuid) }
      expect(Leasehold::Error::Denied.new).to be_a(Cells::TransactionRecord::Error)
    end

    it "has its error on the attribute, or on the record if the setting says so" do
      expect(User.create(username: "theirs").errors.details).to eq(username: [{ error: :taken, value: "theirs" }])

      Leasehold.configuration.taken_errors_on = :base
      user = User.create(username: "theirs")
      expect(user.errors.details).to eq(base: [{ error: :username_taken }])
      expect(user.errors.full_messages).to eq(["username has already been taken"])
    end

    it "names the attributes that may be taken, and those of a record saved along" do
      Leasehold.configuration.taken_errors_on = :base
      naming = Module.new { def unique_attributes = %w[username email] }
      user = User.new(username: "theirs").extend(naming).tap(&:save)
      expect(user.errors.details).to eq(base: [{ error: :username_or_email_taken }])
      expect(user.errors.full_messages).to eq(["username or email has already been taken"])

      as_cell(2) { Email.create!(email: "a@example.com", user: User.create!(username: "owner")) }
      user = User.create(username: "alice", emails: [Email.new(email: "a@example.com")])
      expect(user.errors.full_messages).to eq(["email has already been taken"])
    end

    it "can get the error of a failed gRPC call" do
      { 6 => "path has already been taken", 4 => "This can't be saved at the moment, try again", 13 => "This can't be saved" }.each do |code, message|
        record = organization.new
        2.times { record.handle_grpc_error(GRPC::BadStatus.new(code)) if code == 6 || record.errors.none? }
        expect(record.errors.full_messages).to eq([message])
      end
    end
  end
end
