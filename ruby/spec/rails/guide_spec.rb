# frozen_string_literal: true

require "rails_helper"
require "leasehold/rspec"

# Runs the code that the guide shows. `new_application_spec.rb` runs the guide's quick start.
RSpec.describe "the guide for Rails", :rails do
  include ActiveJob::TestHelper

  # @return [String] the last block of Ruby that contains this text
  def self.code(text)
    pages = %w[rails-capture.md rails-outbox.md rails.md rails-queues.md].map { |page| File.expand_path("../../../docs/src/guides/#{page}", __dir__) }
    blocks = pages.sum("") { |page| File.read(page) }.scan(/^```ruby\n(.*?)^```/m).flatten
    blocks.reverse.find { |block| block.include?(text) } || raise("the guide has no code with `#{text}`")
  end

  # Runs the guide's code with these local variables.
  def run(text, **variables)
    scope = TOPLEVEL_BINDING.dup
    variables.each { |name, value| scope.local_variable_set(name, value) }
    scope.eval(self.class.code(text))
  end

  it "shows a condition that the application of these specs has" do
    model = File.read(File.expand_path("../rails_app/app/models/route.rb", __dir__))

    expect(model).to include(self.class.code("if:").gsub(/^(?=.)/, "  "))
  end

  it "asks Flipper for the flags" do
    asked = []
    stub_const("Flipper", Class.new { define_singleton_method(:enabled?) { |flag| asked << flag } })
    run("Flipper")
    User.create!(username: "alice")

    expect(asked).to include(:cells_unique_claims, :cells_claims_users)
  ensure
    Leasehold.configuration.feature_enabled { true }
  end

  it "begins the lease before the transaction" do
    owner = User.create!(username: "owner")
    old_email = Email.create!(email: "old@example.com", user: owner)
    user = User.new(username: "alice")
    saved = run("Leasehold.claiming", user: user, email: Email.new(email: "new@example.com", user: user), old_email: old_email)

    expect(saved).to be(true)
    expect([claimed(User, :username), claimed(Email, :email)]).to eq([%w[alice owner], %w[new@example.com]])
  end

  it "gives up the claims of rows that are deleted past their callbacks" do
    ActiveJob::Base.queue_adapter = :test
    %w[alice bob].each { |name| User.create!(username: name) }
    run("delete_all", users: User.where(username: "alice"))
    perform_enqueued_jobs while enqueued_jobs.any?

    expect(claimed(User, :username)).to eq(["bob"])
  end

  it "calls the client without ActiveRecord" do
    code = self.class.code("encode_source_id")
    run("encode_source_id")

    expect(claimed(User, :username)).to eq(["alice"])
    lease = Leasehold.client.begin_update(destroys: [{ bucket_type: 4, bucket_value: "alice" }])
    shown = code[/# => (#<struct .*>)/, 1]
    expect(lease.inspect.gsub(/"[^"]*"|\d+/, "…")).to eq(shown.gsub(/"[^"]*"|\d+/, "…"))
  end

  describe "with the outbox" do
    before { Support::Outbox.install }

    after do
      Leasehold.configuration.outbox_databases = nil
      Support::Outbox.remove
    end

    it "submits and enqueues in the transaction" do
      stub_const("Sheet", Class.new(ApplicationRecord) { self.table_name = "users" })
      stub_const("SheetJob", Class.new(ActiveJob::Base))
      sheet = Sheet.create!(username: "alice")
      sheet.define_singleton_method(:update!) { |title:| super(username: title) }
      allow(Leasehold).to receive(:configure).and_yield(Leasehold.configuration)
      run("outbox_databases")
      run("Sheet.transaction do\n  sheet.update!", sheet: sheet)
      waiting = -> { Leasehold.queue("sheets").requests(:waiting, key: sheet.id).requests }

      expect(waiting.call).to be_empty
      Leasehold::Relay.new.drain
      expect([waiting.call.size, sheet.reload.username]).to eq([1, "Budget"])
    end
  end

  it "captures changes past the callbacks, and refuses them in strict mode" do
    Support::Outbox.install
    run("class CaptureClaims")
    ActiveRecord::Migration.suppress_messages { CaptureClaims.migrate(:up) }
    User.insert_all([{ username: "alice", created_at: Time.now, updated_at: Time.now }])
    Leasehold::Relay.new.drain
    expect(claimed(User, :username)).to eq(["alice"])

    Leasehold.configuration.strict_claims = true
    ApplicationRecord.connection.instance_eval(self.class.code("mode: :strict"))
    expect { User.update_all(username: "bob") }.to raise_error(Leasehold::ChangeNotClaimed)
    ActiveRecord::Migration.suppress_messages { CaptureClaims.migrate(:down) }
  ensure
    Leasehold.configuration.strict_claims = false
    Support::Outbox.remove
  end

  it "submits to a queue, and works for it" do
    applied = Thread::Queue.new
    sheet = Struct.new(:id) { define_method(:apply) { |bodies| applied << [id, bodies] } }
    sheet.define_singleton_method(:find) { |id| new(id) }
    stub_const("Sheet", sheet)
    run('queue("sheets")', sheet: Sheet.new(7))
    # The guide's worker ends by a signal to the process, so its block runs in a worker that the example stops.
    worker = nil
    allow(Leasehold).to receive(:work) { |name, **options, &block| worker = Leasehold.queues.worker(name, **options, &block).start }
    run('Leasehold.work("sheets"')
    taken = Array.new(2) { Timeout.timeout(Support::Waiting::DEADLINE_SECONDS) { applied.pop } }
    expect(taken).to eq([["7", ["create"]], ["7", ["recalculate"]]])
  ensure
    worker&.stop
  end

  it "groups jobs of ActiveJob" do
    run("grouped_by {")
    SheetJob.queue_adapter = :leasehold
    SheetJob.perform_later(7)
    expect(Leasehold.queue("jobs.default").requests(:waiting, key: 7).requests.size).to eq(1)
  ensure
    Object.send(:remove_const, :SheetJob)
  end

  it "works under a lock, and guards the transaction" do
    ActiveRecord::Base.connection.execute(Leasehold::Native::GUARD_SQL)
    user = User.create!(username: "alice")
    run("held.guard!", user: user)

    expect(claimed(User, :username)).to eq(["carla"])
    expect(User.connection.select_rows("SELECT resource, fence FROM leasehold_guards").map(&:first)).to eq(["user.update/#{user.id}"])
    expect(Leasehold.locks.get("user.update", user.id).last.reason).to eq(:succeeded)
  ensure
    Support::Guard.remove
  end

  it "shares a lock, holds one of its permits, and several locks together" do
    sheet = Struct.new(:id) { def export = Leasehold.locks.get("sheets", id).state }.new(7)
    code = self.class.code("permits:").lines
    sharing, permit, together = code.map { |line| TOPLEVEL_BINDING.dup.tap { |scope| scope.local_variable_set(:sheet, sheet) }.eval(line) }

    expect([sharing, permit, together]).to eq([:shared, 1, :shared])
    expect(Leasehold.locks.get("accounts", 7).last.reason).to eq(:succeeded)
  end

  it "switches Sidekiq's retries off" do
    options = nil
    Leasehold::ReconcileJob.define_singleton_method(:sidekiq_options) { |**given| options = given }
    run("sidekiq_options")

    expect(options).to eq(retry: false)
  ensure
    Leasehold::ReconcileJob.singleton_class.remove_method(:sidekiq_options)
  end

  describe "schedules" do
    # @return [Hash] the entries of the guide's schedule in this file
    def schedule(file)
      guide = File.read(File.expand_path("../../../docs/src/guides/rails.md", __dir__))
      YAML.safe_load(guide[/^```yaml\n# #{file}\n(.*?)^```/m, 1])
    end

    def good_job
      application = Struct.new(:config).new(Struct.new(:good_job).new(Struct.new(:cron).new))
      stub_const("Rails", Struct.new(:application).new(application))
      run("good_job")
      application.config.good_job.cron
    end

    # Cron's five fields: each minute, and once a day.
    crons = { "Leasehold::ReconcileJob" => "* * * * *", "Leasehold::ScheduleVerificationJob" => "0 3 * * *" }

    it "both jobs with Solid Queue" do
      entries = schedule("config/recurring.yml").fetch("production").values

      expect(entries.to_h { |entry| entry.values_at("class", "schedule") })
        .to eq(crons.keys.zip(["every minute", "every day at 3am"]).to_h)
      expect(entries.map { |entry| entry["class"].constantize }).to all(be < ActiveJob::Base)
    end

    it "both jobs with GoodJob and sidekiq-cron" do
      schedules = [good_job.values.map(&:stringify_keys), schedule("config/schedule.yml").values]
      entries = schedules.map { |schedule| schedule.to_h { |entry| entry.values_at("class", "cron") } }

      expect(entries).to eq([crons, crons])
      expect(schedules.last.map { |entry| entry["active_job"] }).to all(be(true))
    end
  end

  it "requires the file that these specs require" do
    expect(self.class.code("rails_helper.rb").lines.last).to eq(%(require "leasehold/rspec"\n))
  end

  describe "tests of models" do
    before do
      Leasehold.configuration.transactional_tests = true
      ActiveRecord::Base.connection.begin_transaction(joinable: false, _lazy: false)
    end

    after { ActiveRecord::Base.connection.rollback_transaction }

    let(:described_class) { User }

    # The models of these specs' application are loaded later than this file, and its users also
    # claim their ids.
    tests = code("RSpec.describe User").sub("RSpec.describe User", 'describe "a user"')
    class_eval(tests.sub("[:username]", "%i[id username]"))
    class_eval(code("hold_lock").sub("RSpec.describe", "describe"))
  end
end
