# frozen_string_literal: true

require "rails_helper"
require "leasehold/verifier/of_rows"

# The claims of a table may have source ids of another form, for example those of an earlier type of its key.
RSpec.describe "source ids that no key has", :rails do
  let(:foreign) { ["\0\x01", "\x01".b * 9, "\xff".b * 8, "\xff".b * 128] }

  before { Leasehold.configuration.recent_within_seconds = 0.001 }

  after do
    Leasehold.configuration.recent_within_seconds = 3600
    ActiveRecord::Base.connection.execute("DROP TABLE organizations")
  end

  def organization(key_type, **options)
    ActiveRecord::Base.connection.execute("CREATE TABLE organizations (key #{key_type} PRIMARY KEY, path text, owner_id bigint)")
    stub_const("Organization", Class.new(ApplicationRecord) do
      self.table_name = "organizations"
      include Cells::Claimable
      cells_claims_attribute :path, type: :ORGANIZATION_PATH, **options
      cells_claims_metadata subject_type: :ORGANIZATION, subject_key: :owner_id
    end)
  end

  def claim(model, source_ids)
    claims = source_ids.map.with_index do |source_id, index|
      Leasehold::Claim.new(
        bucket_type: 2, bucket_value: "nowhere-#{index}", subject_type: 1, subject_id: 7,
        source_type: model.cells_claims_source_type, source_id: source_id
      )
    end
    Leasehold.client.commit_update(Leasehold.client.begin_update(creates: claims).uuid)
  end

  { "bigint" => 1, "integer" => 1, "uuid" => "5ec2e700-0000-4000-8000-000000000001" }.each do |type, key|
    { "columns" => {}, "instances" => { if: ->(_record) { true } } }.each do |reading, options|
      it "are given up beside rows whose key is #{type}, read by #{reading}" do
        model = organization(type, **options)
        claim(model, foreign)
        model.insert_all!([{ key: key, path: "one", owner_id: 7 }])

        expect(Leasehold::Verifier.new(model).run).to include(extra: 4, destroyed: 4, created: 1, failed: 0)
        expect(claimed(model, :path)).to eq(["one"])
      end
    end
  end

  # Keys beside each other, far from each other, and those of which one is the beginning of another.
  uuids = %w[00000000 00000001 00000002 ffffffff].map { |part| "5ec2e700-0000-4000-8000-0000#{part}" }
  { "bigint" => [0, 1, 2, 2**62], "uuid" => uuids, "text" => ["a", "a\u0001", "ab", "ä" * 64] }.each do |type, keys|
    it "are beside those of single rows that are verified, whose key is #{type} (Q06)" do
      model = organization(type)
      claim(model, foreign)
      model.insert_all!(keys.map.with_index { |key, index| { key: key, path: "p#{index}", owner_id: 7 } })
      single = Leasehold::Verifier::OfRows
      expect(single.new(model, keys.values_at(0, 2, 3)).run).to include(records: 0, created: 3, extra: 0)
      model.where(key: keys[2]).delete_all
      model.where(key: keys[3]).update_all(path: "p2")
      expect(single.new(model, [keys[2]]).run).to include(destroyed: 1)
      expect(single.new(model, keys.rotate(2)).run).to include(records: 2, created: 2, destroyed: 1, failed: 0)
      expect(claimed(model, :path)).to eq(%w[nowhere-0 nowhere-1 nowhere-2 nowhere-3 p0 p1 p2])
    end
  end

  it "bound the rows between two of them" do
    model = organization("bigint")
    model.insert_all!([0, 1, 255, 256, 2**62].map { |key| { key: key, path: key.to_s, owner_id: 7 } })
    bytes = Leasehold::SourceKey.new(model)
    keys = ->(*range) { bytes.range(model.all, *range).ids }

    expect(keys.call("\0" * 8, "\xff".b * 8)).to eq([1, 255, 256, 2**62])
    expect(keys.call("\0" * 6 + "\x01", nil)).to eq([256, 2**62])
    expect(keys.call("\0" * 7 + "\x01\x01", "\0" * 6 + "\x01")).to eq([255])
    expect(keys.call("\xff".b * 9, nil)).to be_empty
  end

  # A source id of zero bytes that is shorter than a key sorts before every key, also before 0 and the nil UUID.
  { "bigint" => [0, 1, 2**62], "uuid" => %w[00000000 00000001 ffffffff].map { |part| "#{part}-0000-0000-0000-000000000000" } }
    .each do |type, keys|
    it "bound no row if they are zero bytes before the first key, whose type is #{type}" do
      model = organization(type)
      model.insert_all!(keys.map { |key| { key: key, path: key.to_s, owner_id: 7 } })
      model.connection.execute("INSERT INTO organizations VALUES (-1, 'negative', 7)") if type == "bigint"
      range = ->(*bounds) { Leasehold::SourceKey.new(model).range(model.all, *bounds).ids }

      ["", "\0", "\0" * 7].each do |zeros|
        expect(range.call(zeros, nil)).to eq(keys)
        expect(range.call(nil, zeros)).to be_empty
        expect(Leasehold::SourceKey.new(model).decode(zeros)).to be_nil
      end
    end
  end

  it "bound a page that the server cuts before key 0" do
    model = organization("bigint")
    model.insert_all!([0, 1].map { |key| { key: key, path: key.to_s, owner_id: 7 } })
    rows = Leasehold::Verifier::RowReader.new(model)
    page = Leasehold::RecordPage.new(records: [])

    expect(rows.read(nil, "\0".b, page, seconds_since_listing: 0).rows).to be_empty
    expect(rows.read("\0".b, nil, page, seconds_since_listing: 0).rows.map(&:first)).to eq([0, 1])
    expect(rows.bound("\0".b, 1)).to eq("\0".b * 8)
  end
end
