# frozen_string_literal: true

require "rails_helper"

# Rails logs the text of each statement, so no text has a value of a claim, a checkpoint or a key.
RSpec.describe "the text of statements (V09)", :rails do
  # Recognises each value that the examples write: names, keys of each type, and the subject's id.
  let(:secret) { /secret|5ec2e7|52007|\\x/i }
  let(:settings) { Leasehold.configuration }

  before do
    settings.recent_within_seconds = 0.001
    settings.verification_page_rows = 2
  end

  after do
    settings.recent_within_seconds = 3600
    settings.verification_page_rows = 1000
    settings.uuid_texts_as_bytes = false
    execute("DROP TABLE organizations")
  end

  def execute(sql)
    ActiveRecord::Base.connection.execute(sql)
  end

  # @return [Array<String>] the texts of the statements that the block sends
  def texts(&block)
    seen = []
    watch = ->(*, payload) { seen << payload[:sql] }
    ActiveSupport::Notifications.subscribed(watch, "sql.active_record", &block)
    seen
  end

  def organization(key_type, **options, &scope)
    execute("CREATE TABLE organizations (key #{key_type} PRIMARY KEY, path text, owner_id bigint, updated_at timestamp)")
    stub_const("Organization", Class.new(ApplicationRecord) do
      self.table_name = "organizations"
      include Cells::Claimable
      cells_claims_attribute :path, type: :ORGANIZATION_PATH, **options
      cells_claims_metadata subject_type: :ORGANIZATION, subject_key: :owner_id
      belongs_to :owner, class_name: "User", optional: true
      cells_claims_scope(&scope) if scope
    end)
  end

  # Inserts rows without callbacks, and changes some of those that were verified.
  def bypass(model, keys)
    model.insert_all!(keys.map.with_index { |key, index| { key: key, path: "secret/#{index}", owner_id: 52_007_900 } })
    expect(texts { Leasehold::Verifier.new(model).run }.grep(secret)).to be_empty
    model.where(key: keys[1]).update_all(path: "secret/moved")
    model.where(key: keys[3]).delete_all
  end

  keys = {
    "text" => ->(number) { "secret-#{number}" },
    "uuid" => ->(number) { format("5ec2e700-0000-4000-8000-%012d", number) },
    "bigint" => ->(number) { 52_007_000 + number }
  }
  keys["text with the bytes of UUIDs"] = keys.fetch("uuid")
  keys.each do |type, key|
    { "columns" => {}, "instances" => { if: ->(_record) { true } } }.each do |reading, options|
      it "has no value while a verification reads #{reading} of rows whose key is #{type}" do
        settings.uuid_texts_as_bytes = type.include?("UUID")
        model = organization(type[/\w+/], **options)
        bypass(model, Array.new(6, &key))
        report = nil
        seen = texts { report = Leasehold::Verifier.new(model).run }

        expect(report).to include(created: 1, destroyed: 2, failed: 0, finished: true)
        expect(seen.grep(/"key"/).size).to be > 5
        expect(seen.grep(secret)).to be_empty
      end
    end
  end

  it "has no value of a scope that verification reads, with joins or without" do
    [->(*) { where.not(path: "secret/5") }, ->(*) { where.not(path: "secret/5").eager_load(:owner) }].each do |scope|
      model = organization("text", &scope)
      bypass(model, Array.new(6, &keys.fetch("text")))
      expect(texts { Leasehold::Verifier.new(model).run }.grep(secret)).to be_empty
      expect(claimed(model, :path)).to contain_exactly("secret/0", "secret/2", "secret/4", "secret/moved")
      model.delete_all
      Leasehold::Verifier.new(model, allow_empty: true).run
      execute("DROP TABLE organizations")
    end
    organization("text")
  end

  it "has no value in saves, bulk jobs and reconciliation" do
    model = organization("text")
    seen = texts do
      record = model.create!(key: "secret-1", path: "secret/1", owner_id: 52_007_900)
      record.update!(path: "secret/2")
      Leasehold.claiming! { |claims| claims.save(model.new(key: "secret-3", path: "secret/3", owner_id: 52_007_900)) }
      metadata = record.build_destroy_metadata_for_worker(:path)
      payload = { "create_record_ids" => %w[secret-1 secret-3], "destroy_metadata" => [metadata] }
      Leasehold::BulkClaimsJob.perform_now("Organization", "path", payload)
      record.destroy!
      lease = Leasehold.client.begin_update(creates: [Support::Claims.username("secret", id: 52_007_001)])
      execute("INSERT INTO cells_outstanding_leases (uuid, created_at, updated_at) VALUES ('#{lease.uuid}', now(), now())")
      reconcile
    end

    expect(seen.grep(/INSERT INTO "organizations"|"organizations"."key" IN/).size).to be >= 3
    expect(seen.grep(secret)).to be_empty
    expect(claimed(model, :path)).to eq(["secret/3"])
  end

  it "has no key of a bulk job, however many it has" do
    model = organization("text")
    payload = { "create_record_ids" => Array.new(70_000) { |number| "secret-#{number}" } }

    expect(texts { Leasehold::BulkClaimsJob.perform_now("Organization", "path", payload) }.grep(secret)).to be_empty
  end
end
