# frozen_string_literal: true

require "rails_helper"

# Rows of several classes in one table (STI), each class with other claims.
RSpec.describe "rows of several classes", :rails do
  before do
    ActiveRecord::Base.connection.execute(<<~SQL)
      CREATE TABLE snippets (id bigserial PRIMARY KEY, type text, name text, owner_id bigint DEFAULT 7, hidden boolean DEFAULT false)
    SQL
    stub_const("Place", Class.new(ApplicationRecord) do
      self.table_name = "snippets"
      include Cells::Claimable
    end)
    place("Group", :PAGES_UNIQUE_DOMAINS)
    place("Project", :USERNAMES)
    stub_const("Nowhere", Class.new(Place))
  end

  after { ActiveRecord::Base.connection.execute("DROP TABLE snippets") }

  def place(name, type)
    stub_const(name, Class.new(Place) do
      cells_claims_attribute :name, type: type, feature_flag: :places, if: ->(place) { !place.hidden }
      cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id, source_type: :RAILS_TABLE_PROJECTS
    end)
  end

  # @return [Array<Array<String>>] the claimed names of groups, and those of projects
  def names
    [claimed(Group, :name), claimed(Project, :name)]
  end

  let!(:group) { Group.create!(name: "one") }

  {
    "`becomes!`" => ->(group, model) { group.becomes!(model).save! },
    "their type" => ->(group, model) { group.update!(type: model.name) },
    "their type, of an instance with some of the columns" => lambda { |group, model|
      Place.select(:id, :type).find(group.id).update!(type: model.name)
    },
    "their type and their name at once" => ->(group, model) { group.update!(type: model.name, name: "two") }
  }.each do |how, change|
    it "destroy the old class's claim and create the new class's claim in one update: by #{how}" do
      begun = calls { change.call(group, Project) }.select { |call| call[:call] == :begin_update }

      expect(begun.map { |call| call.slice(:creates, :destroys) }).to eq([{ creates: 1, destroys: 1 }])
      expect(names).to eq([[], [Place.find(group.id).name]])
    end

    it "destroy the claim if the new class claims nothing, and create it again on return: by #{how}" do
      change.call(group, Nowhere)
      expect(names).to eq([[], []])
      change.call(Place.find(group.id), Group)
      expect(names).to eq([[Place.find(group.id).name], []])

      Place.find(group.id).destroy!
      expect(names).to eq([[], []])
    end
  end

  it "are corrected by verification if their type was written without callbacks" do
    Leasehold.configuration.recent_within_seconds = 0.001
    Group.create!(name: "stays")
    Place.where(id: group.id).update_all(type: "Project")

    expect(Leasehold::Verifier.new(Group).run).to include(destroyed: 1, failed: 0, finished: true)
    expect(names).to eq([["stays"], []])
    expect(Leasehold::Verifier.new(Project).run).to include(created: 1, failed: 0, finished: true)
    expect(names).to eq([["stays"], ["one"]])
  ensure
    Leasehold.configuration.recent_within_seconds = 3600
  end

  describe "in the verification of another class with the same type" do
    before do
      place("Team", :PAGES_UNIQUE_DOMAINS)
      Leasehold.configuration.recent_within_seconds = 0.001
    end

    after do
      Leasehold.configuration.recent_within_seconds = 3600
      Leasehold.configuration.verification_page_rows = 1000
    end

    it "keep their claims, also if that class has no rows yet" do
      expect(Leasehold::Verifier.new(Team).run).to include(rows: 1, extra: 0, destroyed: 0, changed: 0, finished: true)
      expect(names).to eq([["one"], []])
      group.delete
      expect { Leasehold::Verifier.new(Team).run }.to raise_error(Leasehold::Error::Misconfigured, /`Team` has claims but no rows/)
    end

    it "keep their claims on each page, while the claims of that class's rows are corrected (V01)" do
      Leasehold.configuration.verification_page_rows = 3
      5.times { |number| Group.create!(name: "group-#{number}") && Team.create!(name: "team-#{number}") }
      Team.find_by!(name: "team-2").update_column(:name, "renamed")
      Team.insert!({ type: "Team", name: "inserted" })

      expect(Leasehold::Verifier.new(Team).run).to include(rows: 12, extra: 1, destroyed: 1, created: 2, changed: 0)
      expect(names.first).to match_array(Place.pluck(:name))
      expect(Leasehold::Verifier.new(Team).run).to include(rows: 12, missing: 0, different: 0, extra: 0, changed: 0)
    end

    it "lose only the claims that their own class does not call for" do
      Group.create!(name: "two").update_column(:name, "renamed")
      Group.create!(name: "three").update_column(:owner_id, 8)
      Group.create!(name: "four").update_column(:type, "Project")
      Group.create!(name: "five").update_column(:type, "Nowhere")

      expect(Leasehold::Verifier.new(Team).run).to include(rows: 5, missing: 0, different: 0, extra: 3, destroyed: 3, changed: 0)
      expect(names).to eq([%w[one three], []])
    end
  end

  describe "whose base class claims too" do
    before do
      # The registry has only classes that have their names when they declare their claims.
      stub_const("Page", Class.new(Place)).class_eval do
        cells_claims_attribute :name, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :places
        cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id, source_type: :RAILS_TABLE_PROJECTS
      end
      stub_const("WikiPage", Class.new(Page)).cells_claims_attribute :name, type: :USERNAMES, feature_flag: :places
      Leasehold.configuration.recent_within_seconds = 0.001
    end

    after { Leasehold.configuration.recent_within_seconds = 3600 }

    # @return [Array<String>] the models that are scheduled
    def scheduled
      adapter = ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::TestAdapter.new
      Leasehold::ScheduleVerificationJob.perform_now
      adapter.enqueued_jobs.flat_map { |job| job["arguments"] } - %w[Email Key Route User]
    end

    it "are verified once: a class is not scheduled if the verification of its base class compares its rows" do
      WikiPage.insert!({ type: "WikiPage", name: "wiki" })
      expect(scheduled).to eq(["Page"])
      expect(Leasehold::Verifier.new(Page).run).to include(rows: 2, created: 1)
      expect(names).to eq([["one"], ["wiki"]])
    end

    it "are verified by their own class if its scope or source type differs, or if the base class is switched off" do
      flags = ->(flag) { flag != :cells_claims_verification_worker_page }
      Leasehold.configuration.feature_enabled(&flags)
      expect(scheduled).to include("WikiPage")
      Leasehold.configuration.feature_enabled { true }
      expect(scheduled).not_to include("WikiPage")

      WikiPage.cells_claims_scope { where(hidden: false) }
      expect(scheduled).to include("WikiPage")
      WikiPage.cells_claims_scope_block = nil
      expect(scheduled).not_to include("WikiPage")
      WikiPage.cells_claims_metadata subject_type: :PROJECT, subject_key: :owner_id, source_type: 1001
      expect(scheduled).to include("WikiPage")
    ensure
      Leasehold.configuration.feature_enabled { true }
    end
  end

  it "change no claim if their class changes back within one transaction" do
    seen = calls do
      Place.transaction do
        group.becomes!(Project).save!
        Project.find(group.id).becomes!(Group).save!
      end
    end

    expect(seen).to be_empty
    expect(names).to eq([["one"], []])
  end

  it "keep their claims if the change of class is refused, with the error on the attribute" do
    as_cell(2) do
      claim = { bucket_type: 4, bucket_value: "one", subject_type: 4, subject_id: 7, source_type: 1, source_id: [9].pack("Q>") }
      Leasehold.client.commit_update(Leasehold.client.begin_update(creates: [claim]).uuid)
    end
    expect(group.update(type: "Project")).to be(false)

    expect(group.errors).to be_of_kind(:name, :taken)
    expect(names).to eq([["one"], []])
  end

  it "change their claims in the lease-first mode too" do
    group.type = "Project"
    seen = calls { expect(Leasehold.claiming { |claims| claims.save(group) }).to be(true) }

    expect(seen.map { |call| call[:call] }).to eq(%i[begin_update commit_update])
    expect(names).to eq([[], ["one"]])
  end

  it "claim by the class that they are inserted as" do
    Group.new(name: "two").tap { |place| place.type = "Project" }.save!

    expect(names).to eq([["one"], ["two"]])
  end

  describe "written by an instance of another class" do
    it "claim by the row's class" do
      group.becomes(Nowhere).update!(name: "two")
      expect(names).to eq([["two"], []])
      group.reload.becomes(Project).update!(name: "three")
      expect(names).to eq([["three"], []])
    end

    it "destroy the claim of the row's class when they are deleted" do
      others = [Group.create!(name: "two"), Group.create!(name: "three")]
      stale = Group.find(group.id)
      group.update!(type: "Project")
      stale.destroy!
      others.first.becomes(Nowhere).destroy!
      Leasehold.claiming! { |claims| claims.destroy(others.last.becomes(Project)) }

      expect(names).to eq([[], []])
    end
  end

  it "claim by the new class's `if:`, and destroy by the old class's" do
    group.update!(hidden: true)
    expect(names).to eq([[], []])
    group.update!(type: "Project", hidden: false)
    group.update!(type: "Group")

    expect(names).to eq([["one"], []])
  end

  it "are not affected by saves of columns that no class claims" do
    nowhere = Nowhere.create!(name: "nowhere")

    expect(calls { nowhere.update!(owner_id: 8) && group.update!(hidden: false) && nowhere.destroy! }).to be_empty
  end
end
