# frozen_string_literal: true

require "rails_helper"
require "sidekiq/testing"
require "stringio"

RSpec.describe "jobs", :rails do
  describe "on Sidekiq" do
    before { Support::RailsVersions.silence_deprecations { ActiveJob::Base.queue_adapter = :sidekiq } }

    after do
      Sidekiq::Worker.clear_all
      ActiveJob::Base.queue_adapter = :test
    end

    it "serialize their arguments as JSON, and run" do
      id = User.insert({ username: "alice", created_at: 1.day.ago, updated_at: 1.day.ago }).rows.dig(0, 0)
      Sidekiq::Testing.fake! do
        Cells::BulkClaimsWorker.perform_async("User", "username", { "create_record_ids" => [id] })
        Leasehold::VerifyJob.perform_later("User")
        Leasehold::ReconcileJob.perform_later
        Leasehold::ScheduleVerificationJob.perform_later
        Sidekiq::Worker.drain_all
      end

      expect(claimed(User, :username)).to eq(["alice"])
      expect(claimed(User, :id)).to eq([id.to_s])
    end
  end

  it "load all of the application, because subclasses of the model may have claims" do
    printed = Support::CellProcess.run(Support::Cell[1], server.address, <<~RUBY)
      waiting = -> { [:Email, :Key, :User].select { |name| Object.autoload?(name) } }
      p(waiting.call)
      Leasehold::Models.fetch("Route")
      p(waiting.call)
    RUBY

    expect(printed.lines(chomp: true)).to eq(["[:Email, :Key, :User]", "[]"])
  end

  it "pass over a model that was renamed while the process runs" do
    stub_const("Former", Class.new(ApplicationRecord) do
      self.table_name = "emails"
      include Cells::Claimable
      cells_claims_attribute :email, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_emails
    end)
    hide_const("Former")
    published = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { published << payload }, "unverifiable.leasehold") do
      Leasehold::ScheduleVerificationJob.perform_now
    end

    expect(published).to be_empty
    expect { Leasehold::ReconcileJob.perform_now }.not_to raise_error
    expect(Leasehold::Models.names).to eq(%w[Email Key Route User])
  ensure
    Leasehold::Models.instance_variable_get(:@names).delete("Former")
  end

  it "are retried after longer and longer waits while the server is stopped" do
    adapter = ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::TestAdapter.new
    id = User.insert({ username: "alice", created_at: Time.now, updated_at: Time.now }).rows.dig(0, 0)
    server.kill
    job = Leasehold::BulkClaimsJob.new("User", "username", { "create_record_ids" => [id] })
    waits = Array.new(3) do
      job.perform_now
      adapter.enqueued_jobs.last[:at] - Time.now.to_f
    end

    expect(waits).to match([a_value_within(2).of(3), a_value_within(3).of(19), a_value_within(4).of(84)])
  end

  it "raise the first failure of a reconciliation after its other steps" do
    adapter = ActiveJob::Base.queue_adapter = ActiveJob::QueueAdapters::TestAdapter.new
    server.kill
    published = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { published << payload[:step] }, "reconcile_failed.leasehold") do
      expect { Leasehold::ReconcileJob.perform_now }.to raise_error(Leasehold::Error::Unavailable)
    end

    expect(published).to eq(["ListLeases"])
    expect(adapter.enqueued_jobs).to be_empty
  end

  describe "that schedule verifications" do
    let(:adapter) { ActiveJob::QueueAdapters::TestAdapter.new }

    before do
      ActiveJob::Base.queue_adapter = adapter
      ActiveRecord::Base.connection.execute("CREATE TABLE pairs (one_id bigint, name text, PRIMARY KEY (one_id, name))")
    end

    after { ActiveRecord::Base.connection.execute("DROP TABLE pairs") }

    it "leave out a model that cannot be verified, and publish it" do
      stub_const("Pair", Class.new(ApplicationRecord) do
        self.table_name = "pairs"
        include Cells::Claimable
        cells_claims_attribute :name, type: :PAGES_UNIQUE_DOMAINS, feature_flag: :cells_claims_pairs
        cells_claims_metadata subject_type: :PROJECT, subject_key: :one_id, source_type: :RAILS_TABLE_SNIPPETS
      end)
      allow(Leasehold::Models).to receive(:names).and_return(%w[Email Pair User])
      published = []
      ActiveSupport::Notifications.subscribed(->(*, payload) { published << payload }, "unverifiable.leasehold") do
        # Rails 6.1 warns of the composite primary key.
        silence_warnings { Leasehold::ScheduleVerificationJob.perform_now }
      end

      expect(adapter.enqueued_jobs.map { |job| job["arguments"] }).to eq([["Email"], ["User"]])
      expect(published).to contain_exactly(
        include(model: "Pair", message: /\A`Pair` has a primary key of the columns `one_id`, `name`: use a table/)
      )
    end
  end

  describe "by hand" do
    let(:output) { StringIO.new }

    # @return [StringIO] an output whose `tty?` is true, so that progress is printed
    def terminal
      output.tap { |terminal| terminal.define_singleton_method(:tty?) { true } }
    end

    before do
      Leasehold.configuration.recent_within_seconds = 0.001
      User.insert_all(%w[alice bob].map { |name| { username: name, created_at: 1.day.ago, updated_at: 1.day.ago } })
    end

    after { Leasehold.configuration.recent_within_seconds = 3600 }

    it "verify, and print counts" do
      Leasehold::Console.new(output: output, dry_run: false).verify(["User"])

      expect(output.string).to match(/\AUser\n/).and match(/created +4/).and match(/finished +true/)
      expect(output.string).not_to include("\r")
      expect(claimed(User, :username)).to eq(%w[alice bob])
    end

    it "verify the other models if some cannot be, and list those at the end" do
      stub_const("Misnamed", Class.new(ApplicationRecord) do
        self.table_name = "emails"
        include Cells::Claimable
        cells_claims_attribute :email, type: :USERNAMES, feature_flag: :cells_claims_emails
      end)
      allow(Leasehold::Models).to receive(:names).and_return(%w[Misnamed User])

      expect { Leasehold::Console.new(output: output, dry_run: false).verify(%w[Misnamed User]) }
        .to raise_error(Leasehold::Console::Failed, "not verified: `Misnamed`; the reasons are above")
      expect(output.string).to match(/\AMisnamed\n  Leasehold::Error::Misconfigured: .*cells_claims_metadata.*\nUser\n/)
      expect(claimed(User, :username)).to eq(%w[alice bob])
    end

    it "destroy the claims of a table without rows only if told to" do
      Leasehold::Console.new(output: output, dry_run: false).verify(["User"])
      claimed_at = Leasehold.client.list_leases.server_time
      wait_for("the server's clock") { Leasehold.client.list_leases.server_time > claimed_at + 0.01 }
      User.delete_all

      expect { Leasehold::Console.new(output: output, dry_run: false).verify(["User"]) }
        .to raise_error(Leasehold::Console::Failed, /ALLOW_EMPTY=1/)
      Leasehold::Console.new(output: output, dry_run: false, allow_empty: true).verify(["User"])
      expect(claimed(User, :username)).to be_empty
    end

    it "report that calls failed" do
      allow(Leasehold.client).to receive(:begin_encoded).and_raise(Leasehold::Error::Unavailable)

      expect { Leasehold::Console.new(output: output, dry_run: false).verify(["User"]) }
        .to raise_error(Leasehold::Console::Failed, /\Anot verified: calls failed for 4 corrections of `User`\n/) { |error|
          expect(error.status).to eq(4)
        }
      expect(output.string).to match(/^  failed +4$/)
    end

    it "print progress on a terminal" do
      Leasehold::Console.new(output: terminal, dry_run: false).verify(["User"])

      expect(output.string).to match(/\r\e\[K  .*rows 2/)
    end

    it "change nothing in a dry run, and print no values" do
      Leasehold::Console.new(output: output, dry_run: true).verify(["User"])

      expect(output.string).to include("User (dry run)").and include("value_hash")
      expect(output.string).not_to match(/alice|bob/)
      expect(claimed(User, :username)).to be_empty
    end

    describe "after a job stopped in the middle" do
      # Destroys claims whose rows lie before the checkpoint, at which the job stopped.
      before do
        Leasehold.configuration.verification_page_rows = 1
        changed = Leasehold.client.list_leases.server_time
        Leasehold::Verifier.new(User, time_budget_seconds: 0).run
        lost = User.order(:id).first.cells_claims
        Leasehold.client.commit_update(Leasehold.client.begin_update(destroys: lost).uuid)
        wait_for("the server's clock") { Leasehold.client.list_leases.server_time > changed + 0.01 }
      end

      after { Leasehold.configuration.verification_page_rows = 1000 }

      it "verify from the beginning" do
        Leasehold::Console.new(output: output, dry_run: false).verify(["User"])

        expect(claimed(User, :username)).to eq(%w[alice bob])
      end

      it "continue from the checkpoint if told to" do
        Leasehold::Console.new(output: output, dry_run: false, resume: true).verify(["User"])

        expect(claimed(User, :username)).to eq(%w[bob])
      end
    end
  end

  it "log planned corrections of a dry run at debug level only" do
    User.insert({ username: "alice", created_at: 1.day.ago, updated_at: 1.day.ago })
    before = Leasehold.configuration.logger
    lines = %i[info debug].map do |level|
      log = StringIO.new
      Leasehold.configuration.logger = Logger.new(log, level: level, formatter: ->(*, message) { "#{message}\n" })
      Leasehold::Verifier.new(User, dry_run: true).run
      log.string.lines.map { |line| JSON.parse(line) }.select { |line| line["event"] == "leasehold.finding" }
    end

    expect(lines.first).to be_empty
    expect(lines.last.map { |line| line["outcome"] }).to eq(%w[to_create to_create])
  ensure
    Leasehold.configuration.logger = before
  end

  it "log one JSON object a line, without claimed values (V09)" do
    log = StringIO.new
    before = Leasehold.configuration.logger
    Leasehold.configuration.logger = Logger.new(log, formatter: ->(_severity, _time, _program, message) { "#{message}\n" })
    User.create!(username: "alice")
    Leasehold::ReconcileJob.perform_now
    lines = log.string.lines.map { |line| JSON.parse(line) }

    expect(lines.map { |line| line["event"] }).to include("leasehold.begin_update", "leasehold.commit_update", "leasehold.reconcile")
    expect(lines.first).to include("creates" => 2, "code" => "OK", "duration_ms" => a_kind_of(Float))
    expect(log.string).not_to include("alice")
  ensure
    Leasehold.configuration.logger = before
  end
end
