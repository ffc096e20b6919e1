# frozen_string_literal: true

require "rails_helper"
require "leasehold/active_job"

# Enqueues jobs by ActiveJob, and performs them, on a real server.
RSpec.describe "the adapter of ActiveJob" do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  before do
    @settings = %i[logger lock_deadline_seconds].to_h { |name| [name, Leasehold.configuration.public_send(name)] }
    Leasehold.configure do |config|
      config.address = @server.address
      config.tls = { insecure: true }
      config.logger = Logger.new(IO::NULL)
      config.lock_deadline_seconds = Support::LockSessions::DEADLINE_SECONDS
    end
    stub_const("SheetJob", job_class)
    SheetJob.performed = performed
  end

  after do
    clear_locks
    @settings.each { |name, value| Leasehold.configuration.public_send("#{name}=", value) }
    Leasehold.reset_client
  end

  let(:performed) { Thread::Queue.new }
  let(:requests) { Leasehold.queue("jobs.default") }
  let(:job_class) do
    Class.new(ActiveJob::Base) do
      singleton_class.attr_accessor :performed
      self.queue_adapter = :leasehold
      self.logger = nil

      def perform(*arguments)
        self.class.performed << [arguments, executions, provider_job_id]
      end
    end
  end

  def perform(queue = "jobs.default", **options)
    start_worker(Leasehold.queues, queue, max_requests: 1, **options) { |batch| Leasehold::JobWorker.perform(batch) }
  end

  def waiting(key)
    requests.requests(:waiting, key: key).requests
  end

  # Enqueues a job, as each version of Rails does.
  def enqueue(*arguments, **options)
    SheetJob.new(*arguments).tap { |job| job.enqueue(options) }
  end

  it "performs a job once, with its arguments (Q01)" do
    job = enqueue(7, { "name" => "größer" })
    request = waiting(job.job_id).first
    expect(request).to have_attributes(id: job.provider_job_id, kind: :update, priority: 5, max_attempts: 25)
    perform
    expect(next_of(performed)).to eq([[7, { "name" => "größer" }], 1, request.id])
    Support::Waiting.wait_for("the end of the job") { Leasehold.queues.request(request.id).state == :complete }
  end

  it "takes the queue, the priority and the time of the job (Q12)" do
    at = Time.now + 3_600
    job = enqueue(7, queue: "mailers", wait_until: at, priority: -10)
    request = Leasehold.queue("jobs.mailers").requests(:waiting, key: job.job_id).requests.first
    expect(request).to have_attributes(queue: "jobs.mailers", priority: 9, not_before: a_value_within(5).of(at))
    expect([2, 5, 100].map { |priority| waiting(enqueue(priority: priority).job_id).first.priority }).to eq([3, 0, 0])
  end

  it "enqueues many jobs in few calls" do
    jobs = Array.new(1_001) { |number| SheetJob.new("x" * 5_000, number) }
    calls = []
    ActiveSupport::Notifications.subscribed(->(*, payload) { calls << payload[:code] }, "submit.leasehold") do
      expect(SheetJob.queue_adapter.enqueue_all(jobs)).to eq(1_001)
    end
    # The bodies have more than 4 MiB together.
    expect(calls).to eq(%w[OK OK])
    expect(jobs.map(&:provider_job_id).uniq.size).to eq(1_001)
    expect(jobs.map(&:successfully_enqueued?).uniq).to eq([true]) if jobs.first.respond_to?(:successfully_enqueued?)
    expect(waiting(jobs.last.job_id).size).to eq(1)
  end

  it "enqueues one execution of a job once, and a retry as another request (Q09)" do
    job = enqueue(7)
    first = job.provider_job_id
    job.enqueue
    other = SheetJob.new
    SheetJob.queue_adapter.enqueue_all([other, job])
    expect(waiting(job.job_id).map(&:id)).to eq([first])
    expect([job, other].map(&:provider_job_id)).to eq([first, waiting(other.job_id).first.id])
    job.executions = 1
    job.enqueue
    expect(waiting(job.job_id).size).to eq(2)
  end

  it "leaves `retry_on` and `discard_on` to ActiveJob" do
    job_class.retry_on(IndexError, wait: 0, attempts: 3)
    job_class.discard_on(KeyError)
    errors = [IndexError, IndexError, KeyError]
    job_class.define_method(:perform) do
      self.class.performed << executions
      raise errors[executions - 1]
    end
    job = enqueue
    perform
    expect(Array.new(3) { next_of(performed) }).to eq([1, 2, 3])
    settled = -> { requests.requests(:settled).requests.select { |request| request.key == job.job_id } }
    Support::Waiting.wait_for("the end of the job") { settled.call.size == 3 }
    expect(settled.call.map { |request| [request.state, request.attempts] }.uniq).to eq([[:complete, 1]])
  end

  it "performs a job again that raised what it does not handle, and ends it in error (Q13)" do
    Leasehold.configuration.job_max_attempts = 2
    job_class.define_method(:perform) { self.class.performed << 1 and raise NotImplementedError, "secret" }
    job = enqueue
    perform
    2.times { next_of(performed) }
    Support::Waiting.wait_for("the error") { Leasehold.queues.request(job.provider_job_id).state == :error }
    expect(performed).to be_empty
  ensure
    Leasehold.configuration.job_max_attempts = 25
  end

  describe "with groups" do
    let(:release) { Thread::Queue.new }

    # Jobs that end when the example says so.
    def hold_jobs
      release = self.release
      job_class.define_method(:perform) do |*arguments|
        self.class.performed << arguments
        release.pop
      end
    end

    it "performs the jobs of one key in order, one at a time (Q07)" do
      job_class.grouped_by { |job| job.arguments.first }
      hold_jobs
      Array.new(3) { |number| enqueue("a", number) }
      enqueue("b", 0)
      perform(credit: 4)
      expect(Array.new(2) { next_of(performed) }).to contain_exactly(["a", 0], ["b", 0])
      expect(requests.lanes(:taken).lanes.map(&:key)).to contain_exactly("a", "b")
      4.times { release << 1 }
      expect(Array.new(2) { next_of(performed) }).to eq([["a", 1], ["a", 2]])
    end

    it "performs at most so many jobs of a key at a time, and uses all places (Q17)" do
      job_class.grouped_by(:sheet, perform_limit: 2)
      job_class.define_method(:sheet) { arguments.first }
      hold_jobs
      # A job has its place by its id, so twenty jobs have all places, but for a chance of one in a million.
      keys = Array.new(20) { |number| enqueue("a", number) }
      perform(credit: 4)
      2.times { next_of(performed) }
      expect(requests.lanes(:taken).lanes.map(&:key)).to contain_exactly("a/0", "a/1")
      expect(requests.lanes(:ready).lanes).to be_empty
      keys.size.times { release << 1 }
      18.times { next_of(performed) }
    end

    it "tries a failed job again in its place, before those behind it (Q07, Q13)" do
      job_class.grouped_by { |job| job.arguments.first }
      failures = 1
      job_class.define_method(:perform) do |*arguments|
        self.class.performed << arguments
        raise IndexError if (failures -= 1) >= 0
      end
      Array.new(2) { |number| enqueue("a", number) }
      perform(credit: 2)
      expect(Array.new(3) { next_of(performed) }).to eq([["a", 0], ["a", 0], ["a", 1]])
    end

    it "inherits the group, and refuses a key that is no text and quotes none (Q22)" do
      job_class.grouped_by { |job| job.arguments.first }
      stub_const("SmallSheetJob", Class.new(job_class))
      job = SmallSheetJob.new("a").tap(&:enqueue)
      expect(waiting("a").map(&:id)).to eq([job.provider_job_id])
      expect { enqueue(nil) }.to raise_error(Leasehold::Error::Invalid, "`key` does not fit into a message (TypeError)")
      expect { job_class.grouped_by }.to raise_error(ArgumentError)
      expect { job_class.grouped_by(:key) { 1 } }.to raise_error(ArgumentError)
      expect { job_class.grouped_by(:key, perform_limit: 0) }.to raise_error(ArgumentError)
    end
  end

  describe "in a process of its own" do
    # A process of the application that performs jobs, by the adapter that its configuration names.
    def application(terms = Support::LockSessions::LONG, **environment)
      variables = {
        "RAILS_APP_QUEUE_ADAPTER" => "leasehold",
        "RAILS_APP_DATABASE_URL" => "postgresql:///", "RAILS_APP_KEYS_DATABASE_URL" => "postgresql:///",
        "LEASEHOLD_ADDRESS" => @server.address, "SHUTDOWN_TIMEOUT" => "60", **environment
      }
      script(@server.address, terms, <<~RUBY)
        ENV.update(#{variables.inspect})
        require #{File.expand_path("../rails_app/config/environment", __dir__).inspect}
        class SheetJob < ActiveJob::Base
          def perform(name)
            puts [name, executions, Rails.application.executor.active?].join(" ")
            $stdin.gets
            puts "ended"
          end
        end
        Rails.application.load_tasks
        Thread.new { sleep 0.01 until Leasehold::JobWorker.stopping? && puts("stopping").nil? } unless ENV["SHUTDOWN_TIMEOUT"] == "0"
        Rake::Task["leasehold:work"].invoke
        puts SheetJob.queue_adapter_name, SheetJob.queue_adapter.stopping?
      RUBY
    end

    it "performs jobs within Rails' executor, and ends the running one at TERM (Q11)" do
      running, waiting = %w[a b].map { |name| enqueue(name) }
      process = application("CONCURRENCY" => "1")
      expect([process.line, process.line]).to eq(["performs jobs of default, 1 at a time of each", "a 1 true"])
      process.signal("TERM")
      expect(process.line).to eq("stopping")
      process.write("\n")
      expect([process.line, process.line, process.line]).to eq(%w[ended leasehold true])
      expect(process.finish).to be(true)
      states = [running, waiting].map { |job| Leasehold.queues.request(job.provider_job_id) }
      expect(states.map { |request| [request.state, request.attempts] }).to eq([[:complete, 1], [:new, 0]])
    end

    it "performs a job again whose process was killed (Q03)" do
      job = enqueue("a")
      killed = application(Support::LockSessions::SHORT)
      expect([killed.line, killed.line].last).to eq("a 1 true")
      killed.signal("KILL")
      other = application
      expect([other.line, other.line].last).to eq("a 1 true")
      other.write("\n")
      Support::Waiting.wait_for("the end of the job") { Leasehold.queues.request(job.provider_job_id).state == :complete }
      expect(Leasehold.queues.request(job.provider_job_id).attempts).to eq(2)
    end

    it "gives back a job that does not end in time (Q11)" do
      job = enqueue("a", queue: "mailers")
      process = application("QUEUES" => "default, mailers", "SHUTDOWN_TIMEOUT" => "0")
      expect([process.line, process.line]).to eq(["performs jobs of default, mailers, 5 at a time of each", "a 1 true"])
      process.signal("TERM")
      expect([process.line, process.line]).to eq(%w[leasehold true])
      expect(Leasehold.queues.request(job.provider_job_id)).to have_attributes(state: :new, attempts: 0)
    end
  end
end
