# frozen_string_literal: true

require "rails_helper"

RSpec.describe "declarations of a model's claims", :rails do
  before do
    ActiveRecord::Base.connection.execute("CREATE TABLE snippets (id bigserial PRIMARY KEY, name text, owner_id bigint, token uuid)")
    Leasehold.configuration.recent_within_seconds = 0.001
  end

  after do
    ActiveRecord::Base.connection.execute("DROP TABLE snippets")
    Leasehold.configuration.recent_within_seconds = 3600
  end

  # Defines a model that claims its name.
  #
  # @yield the other declarations, in the model's class
  def snippet(type: :PAGES_UNIQUE_DOMAINS, &rest)
    stub_const("Snippet", Class.new(ApplicationRecord) do
      include Cells::Claimable
      cells_claims_attribute :name, type: type, feature_flag: :cells_claims_snippets
      class_eval(&rest)
    end)
  end

  def for_owner
    snippet { cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id }
  end

  it "accept types as Symbols" do
    model = snippet { cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id, source_type: :RAILS_TABLE_SNIPPETS }
    model.create!(name: "alice", owner_id: 7)

    expect(records(model, :name).map { |record| record.claim.to_h }).to contain_exactly(
      include(bucket_type: 18, subject_type: 3, source_type: 12)
    )
  end

  it "refuse a Symbol that names no type" do
    expect { snippet(type: :NAMES) {} }
      .to raise_error(Leasehold::Error::Misconfigured, /`:NAMES` is not a bucket type: use one of .*`:EMAILS`/)
    expect { snippet { cells_claims_metadata subject_type: :GROUP, subject_key: :owner_id } }
      .to raise_error(Leasehold::Error::Misconfigured, /`:GROUP` is not a subject type: use one of .*`:PROJECT`/)
  end

  it "name the source types if the contract has none for the table" do
    expect { Leasehold::ClaimedTable.source_type("gadgets") }.to raise_error(
      Leasehold::Error::Misconfigured,
      /no source type for the table `gadgets`: pass `source_type:` .*`:RAILS_TABLE_USERS`.*, or .* a number from 1001 on/
    )
  end

  it "refuse an invalid argument by its name" do
    {
      { type: 99 } => /`"99"` is not a bucket type: use one of .*`:EMAILS`/, { type: 0 } => /`"0"` is not a bucket type/,
      { if: 5 } => /`if:` of `name` is `5`: it must be a Proc/
    }.each do |wrong, message|
      options = { type: :USERNAMES, feature_flag: :cells_claims_things, **wrong }
      expect { snippet { cells_claims_attribute(:name, **options) } }
        .to raise_error(wrong.key?(:if) ? ArgumentError : Leasehold::Error::Misconfigured, message)
    end
  end

  it "accept a block evaluated in the record as the condition" do
    model = snippet do
      cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id, source_type: :RAILS_TABLE_SNIPPETS
      cells_claims_attribute :name, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things, if: -> { name != "fancy" }
    end
    %w[plain fancy].each { |name| model.create!(name: name, owner_id: 7) }

    expect(claimed(model, :name)).to eq(["plain"])
  end

  it "accept a method's name as the condition" do
    model = snippet do
      cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id, source_type: :RAILS_TABLE_SNIPPETS
      cells_claims_attribute :name, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things, if: :plain?
      define_method(:plain?) { name != "fancy" }
      private :plain?
    end
    %w[plain fancy].each { |name| model.create!(name: name, owner_id: 7) }

    expect(claimed(model, :name)).to eq(["plain"])
  end

  it "are reported as missing if a model has none" do
    model = snippet {}
    expect { model.create!(name: "alice", owner_id: 7) }
      .to raise_error(Leasehold::Error::Misconfigured, /`Snippet` does not declare the subject .* add `cells_claims_metadata/)
    expect { Leasehold::Verifier.new(model).run }.to raise_error(Leasehold::Error::Misconfigured, /cells_claims_metadata/)
  end

  it "refuse a subject key that returns no Integer" do
    model = snippet { cells_claims_metadata subject_type: :PROJECT, subject_key: :token }
    expect { model.create!(name: "alice", token: SecureRandom.uuid) }
      .to raise_error(Leasehold::Error::Misconfigured, /`Snippet#token` is of class String: name a `subject_key` that returns an Integer/)
    model.insert_all!([{ name: "alice", token: SecureRandom.uuid }])
    expect { Leasehold::Verifier.new(model).run }.to raise_error(Leasehold::Error::Misconfigured, /Snippet#token/)
  end

  it "refuse a subject key that the row does not have" do
    model = snippet { cells_claims_metadata subject_type: :PROJECT, subject_key: :owner }
    expect { model.create!(name: "alice", owner_id: 7) }
      .to raise_error(Leasehold::Error::Misconfigured, /`Snippet#owner` is neither a column nor a method: name a `subject_key`/)
    expect(model.count).to eq(0)
  end

  it "report a subject id that is missing or less than 1" do
    [nil, 0, -1].each do |owner_id|
      seen = calls do
        expect { for_owner.create!(name: "alice", owner_id: owner_id) }
          .to raise_error(Leasehold::Error::Invalid, /`Snippet#owner_id` is #{owner_id.inspect}: .* a subject id of 1 or more/)
      end
      expect(seen).to be_empty
    end
    expect { for_owner.create!(id: -1, name: "alice", owner_id: 7) }
      .to raise_error(Leasehold::Error::Invalid, /`Snippet#id` is -1: .*0/)
    expect(for_owner.create!(id: 0, name: "alice", owner_id: 7)).to be_persisted
  end

  it "report a key that is too long, with the limit (B11)" do
    alter("DROP id, ADD slug text PRIMARY KEY")
    model = for_owner.tap(&:reset_column_information)

    expect(model.create!(slug: "s" * 128, name: "alice", owner_id: 7)).to be_persisted
    expect { model.create!(slug: "s" * 129, name: "bob", owner_id: 7) }.to raise_error(Leasehold::Error::Invalid) { |error|
      expect(error.message).to eq("`Snippet#slug` is 129 bytes long: `name` can only be claimed for keys of at most 128 bytes")
      expect(error).to have_attributes(code: "LIMIT_EXCEEDED", metadata: include("max" => "128"))
    }
    expect(model.count).to eq(1)
  end

  it "claim nothing for rows without a subject, which verification reports and which can be destroyed" do
    model = for_owner
    model.insert_all!([{ name: "nobodys", owner_id: nil }, { name: "bob", owner_id: 7 }])

    expect(Leasehold::Verifier.new(model).run).to include(created: 1, invalid: 1, finished: true)
    model.create!(name: "alice", owner_id: 7)
    model.where(name: "alice").update_all(owner_id: nil)
    model.find_by!(name: "alice").destroy!
    expect(claimed(model, :name)).to eq(["bob"])
  end

  it "refuse a table without a primary key" do
    alter("DROP id")
    expect_refusal("`Snippet` has no primary key: use a table whose primary key is one column")
  end

  it "refuse a table whose primary key has several columns" do
    alter("DROP id, ADD PRIMARY KEY (owner_id, name)")
    # Rails 6.1 warns of the composite primary key.
    silence_warnings do
      expect_refusal("`Snippet` has a primary key of the columns `owner_id`, `name`: use a table whose primary key is one column")
    end
  end

  it "refuse a key that the database cannot order by its bytes" do
    { "citext" => "citext", "numeric" => "numeric(20,0)", "character" => "char(20)", "name" => "name" }.each do |shown, type|
      ActiveRecord::Base.connection.execute("CREATE EXTENSION IF NOT EXISTS citext")
      alter("ALTER id DROP DEFAULT, ALTER id TYPE #{type} USING id::#{type}")
      expect_refusal(/\A`Snippet#id` is a `#{shown}.*`: use a primary key that is a whole number, a UUID or a text\z/)
    end
  end

  it "refuse a column whose values are not read as they were written" do
    ActiveRecord::Base.connection.execute("CREATE DOMAIN code AS char(20); CREATE DOMAIN short_code AS code CHECK (value <> '')")
    {
      "character(20)" => "char(20)", "short_code" => "short_code", "name" => "name", "uuid" => "uuid", "macaddr" => "macaddr",
      "jsonb" => "jsonb"
    }.each do |shown, type|
      alter("ALTER name TYPE #{type} USING NULL")
      expect_refusal(
        "`Snippet#name` is a `#{shown}`, whose values may be read differently than they were written: " \
        "claim a `text` or a `character varying`"
      )
    end
  ensure
    alter("ALTER name TYPE text")
    ActiveRecord::Base.connection.execute("DROP DOMAIN short_code, code")
  end

  it "accept a column with any collation" do
    ActiveRecord::Base.connection.execute("CREATE EXTENSION IF NOT EXISTS citext")
    ActiveRecord::Base.connection.execute("CREATE DOMAIN nickname AS varchar(30)")
    %w[varchar(20) citext nickname].each do |type|
      alter("ALTER name TYPE #{type}")
      row = for_owner.tap(&:reset_column_information).create!(name: "Alice", owner_id: 7)
      row.update!(name: "bob")
      row.destroy!
      expect([outstanding_leases, records(Snippet, :name)]).to all(be_empty)
    end
  ensure
    alter("ALTER name TYPE text")
    ActiveRecord::Base.connection.execute("DROP DOMAIN nickname")
  end

  it "identify rows by their UUIDs in any spelling" do
    alter("ALTER id DROP DEFAULT, ALTER id TYPE uuid USING NULL, ALTER id SET DEFAULT gen_random_uuid()")
    id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    ["{#{id}}", id.delete("-"), id.upcase].each do |spelled|
      row = for_owner.tap(&:reset_column_information).create!(id: spelled, name: "alice", owner_id: 7)
      expect(records(Snippet, :name).map { |record| record.claim.source_id }).to eq([[id.delete("-")].pack("H*")])
      row.update!(name: "bob")
      row.destroy!
      expect([outstanding_leases, records(Snippet, :name)]).to all(be_empty)
    end
  end

  def alter(how)
    ActiveRecord::Base.connection.execute("ALTER TABLE snippets #{how}")
  end

  def expect_refusal(message)
    model = for_owner.tap(&:reset_column_information)
    expect { model.create!(name: "alice", owner_id: 7) }.to raise_error(Leasehold::Error::Misconfigured, message)
    expect { Leasehold::Verifier.new(model).run }.to raise_error(Leasehold::Error::Misconfigured, message)
    expect(model.connection.select_value("SELECT count(*) FROM snippets")).to eq(0)
  end

  it "refuse an attribute that is not a column, and name the column of an alias" do
    # The model is anonymous during its definition, so that jobs of other examples do not find it.
    claiming = lambda do |name, &column|
      snippet do
        cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id
        class_eval(&column)
        cells_claims_attribute name, type: :USERNAMES, feature_flag: :cells_claims_snippets
      end
    end
    model = claiming.call(:login) { alias_attribute :login, :name }
    message = /`Snippet#login` is not a column of `snippets`: claim `name`/
    expect { model.create!(name: "alice", owner_id: 7) }.to raise_error(Leasehold::Error::Misconfigured, message)
    expect { Leasehold::Verifier.new(model).run }.to raise_error(Leasehold::Error::Misconfigured, message)

    model = claiming.call(:nick) { attribute :nick, :string }
    expect { model.create!(nick: "alice", owner_id: 7) }.to raise_error(Leasehold::Error::Misconfigured, /claim a column/)
  end

  it "refuse a column that was renamed after the check" do
    model = for_owner
    model.create!(name: "alice", owner_id: 7)
    alter("RENAME name TO title")
    model.reset_column_information

    expect { model.create!(title: "bob", owner_id: 7) }
      .to raise_error(Leasehold::Error::Misconfigured, /`Snippet#name` is not a column of `snippets`/)
    expect(model.count).to eq(1)
  end

  it "claim a date in one form, whatever form the application gives to dates" do
    alter("ADD born date")
    model = for_owner.tap(&:reset_column_information)
    model.cells_claims_attribute :born, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_things
    before = Date::DATE_FORMATS[:default]
    Date::DATE_FORMATS[:default] = "%d.%m.%Y"
    model.create!(name: "alice", owner_id: 7, born: Date.new(2001, 2, 3))

    expect(claimed(model, :born)).to include("2001-02-03")
  ensure
    before ? Date::DATE_FORMATS[:default] = before : Date::DATE_FORMATS.delete(:default)
  end

  describe "of encrypted values" do
    # A type that decrypts on reading, as `encrypts` of Rails 7 does.
    let(:encrypted) do
      Class.new(ActiveRecord::Type::Text) do
        define_method(:serialize) { |value| value && cipher(:encrypt, value) }
        define_method(:deserialize) { |value| value && cipher(:decrypt, value.unpack1("m0")).force_encoding(Encoding::UTF_8) }

        def cipher(mode, text)
          cipher = OpenSSL::Cipher.new("aes-256-ecb").public_send(mode)
          cipher.key = "k" * 32
          result = cipher.update(text) + cipher.final
          mode == :encrypt ? [result].pack("m0") : result
        end
      end
    end

    it "claim the decrypted value" do
      type = encrypted.new
      model = for_owner.tap { |encrypting| encrypting.attribute(:name, type) }
      snippet = model.create!(name: "alice", owner_id: 7)
      expect(model.connection.select_value("SELECT name FROM snippets")).to eq(type.serialize("alice"))
      expect(claimed(model, :name)).to eq(["alice"])

      snippet.update!(name: "bob")
      expect(claimed(model, :name)).to eq(["bob"])
      lost = Leasehold.client.begin_update(destroys: snippet.cells_claims)
      Leasehold.client.commit_update(lost.uuid)
      expect(Leasehold::Verifier.new(model).run).to include(created: 1, destroyed: 0, invalid: 0)
      expect(claimed(model, :name)).to eq(["bob"])
      expect(snippet.destroy!.then { claimed(model, :name) }).to be_empty
    end

    it "claim a blind index, so that the value stays with the cell" do
      index = ->(value) { OpenSSL::HMAC.hexdigest("SHA256", "a key of all cells", value) }
      model = for_owner
      model.attribute(:secret)
      model.before_validation { self.name = index.call(secret) }
      model.create!(secret: "alice", owner_id: 7)

      expect(claimed(model, :name)).to eq([index.call("alice")])
      expect(model.new(secret: "alice", owner_id: 8).tap(&:save).errors).to be_of_kind(:name, :taken)
    end
  end

  it "accept texts only: other values are invalid" do
    snippet = for_owner.new(name: "\xff", owner_id: 7)

    expect(snippet).not_to be_valid
    expect(snippet.errors).to be_of_kind(:name, :invalid)
  end
end
