# frozen_string_literal: true

require "rails_helper"

RSpec.describe "limits of verification", :rails do
  before do
    Leasehold.configuration.recent_within_seconds = 0.001
    Leasehold.configuration.verification_max_destroy_share = 0.1
  end

  after do
    Leasehold.configuration.recent_within_seconds = 3600
    Leasehold.configuration.verification_max_destroy_share = 1
    Leasehold.configuration.verification_page_rows = 1000
    Leasehold.configuration.feature_enabled { true }
  end

  # Waits until the claims are no longer recent.
  def let_it_settle
    changed = Leasehold.client.list_leases.server_time
    Support::Waiting.wait_for("the server's clock") { Leasehold.client.list_leases.server_time > changed + 0.01 }
  end

  def verify(model = User, **options)
    let_it_settle
    Leasehold::Verifier.new(model, **options).run
  end

  def events(name)
    seen = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { seen << payload }, "#{name}.leasehold") { yield }
    seen
  end

  def console(**options)
    output = StringIO.new
    Leasehold::Console.new(output: output, **options).verify(["User"])
    output.string
  end

  { "the global flag is off" => ->(flag) { flag != :cells_unique_claims },
    "the flags of all attributes are off" => ->(flag) { flag == :cells_unique_claims } }.each do |reason, enabled|
    describe "if #{reason}" do
      before do
        insert_users(1..3)
        verify
        let_it_settle
        Leasehold.configuration.feature_enabled(&enabled)
      end

      it "reads nothing, changes nothing, and says so (V11)" do
        [false, true].each do |dry_run|
          published = events("verification_disabled") do
            reads = events("list_records") do
              expect(calls { expect(verify(dry_run: dry_run)).to include(disabled: true, finished: true) }).to be_empty
            end
            expect(reads).to be_empty
          end
          expect(published).to eq([{ model: "User", dry_run: dry_run }])
          expect(console(dry_run: dry_run)).to match(/\AUser.*\n  nothing is verified: the feature flags/)
        end
        expect(claimed(User, :username).size + claimed(User, :id).size).to eq(6)
      end

      it "leaves the claims of an emptied table alone, by jobs too (V11)" do
        User.delete_all
        Leasehold::VerifyJob.perform_now("User", allow_empty: true)

        expect(claimed(User, :username).size + claimed(User, :id).size).to eq(6)
      end
    end
  end

  it "keeps the claims of a flag that is switched off during the run (V11)" do
    user = User.create!(username: "alice")
    %w[one two].each { |path| Route.create!(path: path, user: user) }
    Route.update_all(updated_at: 1.day.ago)
    let_it_settle
    read = Leasehold::Verifier.new(Route)
    Leasehold.configuration.feature_enabled { false }

    expect(read.run).to include(destroyed: 0)
    expect(claimed(Route, :path)).to eq(%w[one two])
  end

  it "keeps the checkpoint, which contains values, out of the text of statements and of logs (V09)" do
    insert_users(1..3)
    let_it_settle
    log = StringIO.new
    before = ActiveRecord::Base.logger
    ActiveRecord::Base.logger = Logger.new(log)
    Leasehold::Verifier::Progress.new(User, User.connection).store('{"takes":["alice"]}')

    expect(log.string).to include("INSERT INTO cells_claims_verifications").and match(/\d+ bytes of binary data/)
    expect(log.string).not_to include("alice")
    expect(Leasehold::Verifier::Progress.new(User, User.connection).checkpoint).to eq('{"takes":["alice"]}')
  ensure
    ActiveRecord::Base.logger = before
  end

  describe "of the share of claims that a run destroys (V11)" do
    before do
      insert_users(1..50)
      verify
    end

    it "stops the run before it destroys anything, and goes on only if told to" do
      User.where(id: 1..6).delete_all
      message = /destroy 12 of the 100 claims of `User`.*`max_destroy_share: 0\.12`.*`MAX_DESTROY_SHARE=0\.12`/

      expect { verify }.to raise_error(Leasehold::Error::Misconfigured, message) { |error| expect(error.code).to eq("TOO_MANY_DESTROYS") }
      expect { verify(max_destroy_share: 0.11) }.to raise_error(Leasehold::Error::Misconfigured, message)
      expect { Leasehold::VerifyJob.perform_now("User") }.to raise_error(Leasehold::Error::Misconfigured, message)
      expect { console(dry_run: false) }.to raise_error(Leasehold::Console::Failed, message) { |error| expect(error.status).to eq(2) }
      expect(claimed(User, :username).size + claimed(User, :id).size).to eq(100)

      expect(verify(max_destroy_share: 0.12)).to include(destroyed: 12, rows: 0)
    end

    it "destroys nothing after a refused run if the missing rows are back" do
      User.where(id: 1..6).delete_all
      expect { verify }.to raise_error(Leasehold::Error::Misconfigured)
      insert_users(1..6)

      expect(verify).to include(destroyed: 0, changed: 12)
    end

    it "goes on below the share" do
      User.where(id: 1..10).delete_all

      expect(verify(max_destroy_share: 0.2)).to include(destroyed: 20)
    end

    it "destroys ten claims of any table" do
      User.where(id: 1..5).delete_all

      expect(verify(max_destroy_share: 0)).to include(destroyed: 10)
    end

    it "says in a dry run that a run would stop" do
      User.where(id: 1..6).delete_all

      expect(verify(dry_run: true)).to include(to_destroy: 12, over_destroy_limit: true)
      expect(console(dry_run: true)).to match(/a run that corrects would stop: it would destroy 12 of 100 claims/)
      expect(verify(dry_run: true, max_destroy_share: 1)).to include(over_destroy_limit: false)
    end

    it "counts no claim that is replaced" do
      User.update_all("username = upper(username)")

      expect(verify).to include(replaced: 50, destroyed: 0)
    end

    it "counts the whole table for a run that goes on from a checkpoint" do
      Leasehold.configuration.verification_page_rows = 5
      User.where(id: 1..6).delete_all
      runs = 1
      runs += 1 until verify(time_budget_seconds: 0, max_destroy_share: 0.12)[:finished] || runs > 20

      expect(claimed(User, :username).size).to eq(44)
    end

    it "counts the whole table before it destroys many claims of neighbouring rows, also if each run compares one page" do
      insert_users(51..2100)
      verify
      User.where(id: 1..1050).delete_all
      Leasehold.configuration.verification_page_rows = 500
      message = /destroy 2100 of the 4200 claims/

      expect { 20.times { verify(time_budget_seconds: 0) } }.to raise_error(Leasehold::Error::Misconfigured, message)
      expect(verify(max_destroy_share: 0.5)).to include(destroyed: 2100)
    end

    it "passes the permission on to the continuation of a job" do
      ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::TestAdapter.new
      Leasehold.configuration.verification_page_rows = 5
      Leasehold.configuration.verification_time_budget_seconds = 1e-9
      Leasehold::VerifyJob.perform_now("User", max_destroy_share: 0.5)

      expect(ActiveJob::Base.queue_adapter.enqueued_jobs.map { |job| job["arguments"].last }).to match([include("max_destroy_share" => 0.5)])
    ensure
      Leasehold.configuration.verification_time_budget_seconds = 270
    end
  end
end
