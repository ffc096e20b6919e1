# frozen_string_literal: true

require "rails_helper"
require "leasehold/active_job"
require "leasehold/relay"

RSpec.describe "the outbox", :rails do
  include Support::LockSessions

  before do
    Support::Outbox.install
    settings(outbox_databases: ["ApplicationRecord"], lock_deadline_seconds: Support::LockSessions::DEADLINE_SECONDS)
  end

  after do
    @relays&.each { |relay| relay.stop(within: 60) }
    clear_locks
    ApplicationRecord.connection.execute("SELECT leasehold_end_claims_capture(captured) FROM leasehold_claims_captures")
    @settings.each { |name, value| Leasehold.configuration.public_send("#{name}=", value) }
    Support::Outbox.remove
  end

  def settings(**changed)
    @settings = changed.keys.to_h { |name| [name, Leasehold.configuration.public_send(name)] }.merge(@settings || {})
    changed.each { |name, value| Leasehold.configuration.public_send("#{name}=", value) }
  end

  let(:sheets) { Leasehold.queue("sheets") }

  def relay(**options)
    Leasehold::Relay.new(ApplicationRecord, **options).tap { |relay| (@relays ||= []) << relay }
  end

  def drain
    relay.tap(&:drain)
  end

  def waiting(key, queue = sheets)
    queue.requests(:waiting, key: key).requests
  end

  def state(id)
    Leasehold.queues.request(id)&.state
  end

  describe "with submits" do
    it "has a request exactly if the transaction commits, with all that it was given (Q14)" do
      ids = nil
      ApplicationRecord.transaction do
        ids = [sheets.submit("7", "größer", kind: :create, priority: 3, delay: 3_600, max_attempts: 5), sheets.submit(7, "two")].map(&:id)
        ApplicationRecord.transaction(requires_new: true) { sheets.submit("7", "gone") and raise ActiveRecord::Rollback }
        expect(ids.map { |id| state(id) }).to eq([nil, nil])
      end
      ApplicationRecord.transaction { sheets.submit("7", "gone") and raise ActiveRecord::Rollback }
      drain
      expect(waiting("7").map(&:id)).to eq(ids)
      expect(waiting("7").first).to have_attributes(kind: :create, priority: 3, max_attempts: 5, not_before: a_value_within(60).of(Time.now + 3_600))
      expect(Leasehold.queues.request(ids.first, body: true).body).to eq("größer".b)
    end

    it "calls the server outside of a transaction, and within one unless the setting names its database" do
      expect(state(sheets.submit("7").id)).to eq(:new)
      settings(outbox_databases: nil)
      ApplicationRecord.transaction { expect(state(sheets.submit("7").id)).to eq(:new) }
    end

    it "writes many requests in order, whose ids begin with the time (Q15, Q16)" do
      ids = ApplicationRecord.transaction { sheets.submit_all(Array.new(250) { |number| { key: "7", body: number.to_s } }).map(&:id) }
      drain
      expect(ids.map { |id| id[14] }.uniq).to eq(["7"])
      expect(sheets.requests(:waiting, key: "7", limit: 1_000).requests.map(&:id)).to eq(ids)
    end

    it "refuses what the server would refuse, and quotes nothing of it (Q22)" do
      submit = -> { ApplicationRecord.transaction { sheets.submit("secret\u0001") } }
      expect(&submit).to raise_error(an_instance_of(Leasehold::Error::Invalid), /`key`.*exceeds its limit/) { |error| expect(error.message).not_to include("secret") }
      expect { ApplicationRecord.transaction { sheets.submit("7", priority: "high") } }.to raise_error(Leasehold::Error::Invalid)
    end

    it "leaves keys and bodies out of ActiveRecord's log (Q22)" do
      log = StringIO.new
      former, ActiveRecord::Base.logger = ActiveRecord::Base.logger, Logger.new(log)
      ApplicationRecord.transaction { sheets.submit("secret-key", "secret-body") }
      drain
      expect(log.string).to include("leasehold_submit").and include("leasehold_outbox_read")
      expect(log.string).not_to match(/secret/)
      expect(relay.instance_variable_get(:@rows).class::Row.new(1, 2, "submit", "q", "secret").inspect).not_to include("secret")
    ensure
      ActiveRecord::Base.logger = former
    end

    it "tells of a database without an outbox" do
      Support::Outbox.remove
      expect { ApplicationRecord.transaction { sheets.submit("7") } }.to raise_error(Leasehold::Error::Misconfigured, /leasehold:outbox/)
      expect { Leasehold::Relay.run }.to raise_error(Leasehold::Error::Misconfigured, /leasehold:outbox/)
    ensure
      Support::Outbox.install
    end
  end

  describe "with jobs" do
    before do
      stub_const("SheetJob", Class.new(ActiveJob::Base) { self.queue_adapter = :leasehold })
      SheetJob.logger = nil
    end

    it "enqueues a job exactly if the transaction commits (Q14)" do
      jobs = []
      ApplicationRecord.transaction { jobs << SheetJob.perform_later(1) and raise ActiveRecord::Rollback }
      ApplicationRecord.transaction { jobs << SheetJob.perform_later(2) << SheetJob.set(wait: 3_600).perform_later(3) }
      drain
      expect(jobs.map { |job| waiting(job.job_id, Leasehold.queue("jobs.default")).map(&:id) })
        .to eq([[], [jobs[1].provider_job_id], [jobs[2].provider_job_id]])
    end

    it "lets Rails 7.2 enqueue in a transaction of a database with an outbox, and after those of others (Q14)" do
      after = -> { SheetJob.queue_adapter.enqueue_after_transaction_commit? }
      ApplicationRecord.transaction { expect(after.call).to be(false) }
      KeysRecord.transaction do
        expect(after.call).to be(true)
        ApplicationRecord.transaction { expect(after.call).to be(false) }
      end
      settings(outbox_databases: nil)
      ApplicationRecord.transaction { expect(after.call).to be(true) }
    end
  end

  describe "with completions" do
    def work(&block)
      start_worker(queues_of(server.address), &block)
    end

    it "completes a batch with the transaction of its work, and not without it (Q14)" do
      settled = Thread::Queue.new
      kept, dropped = %w[kept dropped].map { |key| sheets.submit(key, max_attempts: 1).id }
      work do |batch|
        ApplicationRecord.connection_pool.with_connection do
          ApplicationRecord.transaction do
            batch.complete!(ApplicationRecord)
            raise ActiveRecord::Rollback if batch.key == "dropped"
          end
        end
        settled << batch.key
        raise IndexError
      end
      2.times { next_of(settled) }
      Support::Waiting.wait_for("the ends") { [kept, dropped].none? { |id| state(id) == :in_progress } }
      expect([kept, dropped].map { |id| state(id) }).to eq(%i[complete error])
      drain
      expect(state(kept)).to eq(:complete)
    end

    # Works on a batch of one attempt in a block that ends without an error.
    #
    # @return [Symbol] the state of the request after it
    def state_after(&block)
      id = sheets.submit("7", max_attempts: 1).id
      work { |batch| ApplicationRecord.connection_pool.with_connection { block.call(batch) } }
      Support::Waiting.wait_for("the end") { %i[complete error].include?(state(id)) }
      state(id)
    end

    def roll_back(batch, **options)
      ApplicationRecord.transaction(**options) do
        batch.complete!(ApplicationRecord)
        raise ActiveRecord::Rollback
      end
    end

    it "fails a batch whose transaction was rolled back, if the block ends without an error (Q14)" do
      expect(state_after { |batch| roll_back(batch) }).to eq(:error)
    end

    it "fails a batch whose savepoint was rolled back in a transaction that commits (Q14)" do
      expect(state_after { |batch| ApplicationRecord.transaction { roll_back(batch, requires_new: true) } }).to eq(:error)
    end

    it "fails a batch whose transaction was rolled back after its savepoint was released (Q14)" do
      state = state_after do |batch|
        ApplicationRecord.transaction(joinable: false) do
          ApplicationRecord.transaction { batch.complete!(ApplicationRecord) }
          raise ActiveRecord::Rollback
        end
      end
      expect(state).to eq(:error)
    end

    it "completes a batch whose second transaction commits, and one whose savepoint is released before the COMMIT (Q14)" do
      state = state_after do |batch|
        roll_back(batch)
        ApplicationRecord.transaction(joinable: false) { ApplicationRecord.transaction { batch.complete!(ApplicationRecord) } }
      end
      expect(state).to eq(:complete)
    end

    it "fails a batch if the connection is lost during the COMMIT (Q14)" do
      state = state_after do |batch|
        ApplicationRecord.transaction do
          batch.complete!(ApplicationRecord)
          pid = ApplicationRecord.connection.select_value("SELECT pg_backend_pid()")
          Support::Cell[1].query("SELECT pg_terminate_backend(#{pid}, 60000)")
        end
      rescue ActiveRecord::ActiveRecordError
        nil
      end
      expect(state).to eq(:error)
    end

    # Starts a worker that dies after the COMMIT of its completion.
    def complete_and_die(terms)
      worker = script(server.address, terms, <<~RUBY)
        ENV.update(#{Support::Cell[1].environment(server.address).inspect})
        require #{File.expand_path("../rails_app/config/environment", __dir__).inspect}
        Leasehold.configuration.tls = { insecure: true }
        Leasehold.work("sheets") do |batch|
          ApplicationRecord.transaction { batch.complete! }
          puts "committed"
          sleep
        end
      RUBY
      expect(worker.line).to eq("committed")
      worker.signal("KILL")
    end

    it "completes it by the relay if the worker dies after the COMMIT (Q14)" do
      id = sheets.submit("7").id
      complete_and_die(Support::LockSessions::LONG)
      expect(state(id)).to eq(:in_progress)
      drain
      expect(state(id)).to eq(:complete)
    end

    # Takes the batch of key 7, and notes how many requests it has, and the bodies of those that are not done.
    def work_on_undone
      seen = Thread::Queue.new
      worker = work do |batch|
        ApplicationRecord.connection_pool.with_connection do
          ApplicationRecord.transaction do
            undone = batch.undone!(ApplicationRecord).map(&:body)
            batch.complete!(ApplicationRecord)
            seen << [batch.requests.size, undone]
          end
        end
      end
      next_of(seen).tap { worker.stop }
    end

    it "tells the next worker what one has done that died after the COMMIT, before and after the relay (Q14)" do
      ActiveRecord::Base.connection.execute(Leasehold::Native::GUARD_SQL)
      [-> {}, -> { drain }].each do |relayed|
        sheets.submit("7", "one")
        complete_and_die(Support::LockSessions::SHORT)
        sheets.submit("7", "two")
        Support::Waiting.wait_for("the end of the session") { sheets.lanes(:taken).lanes.empty? }
        relayed.call
        expect(work_on_undone).to eq([2, ["two"]])
      end
    ensure
      Support::Guard.remove
    end

    it "needs a transaction" do
      sheets.submit("7")
      errors = Thread::Queue.new
      start_worker(queues_of(server.address), on_error: ->(error, _) { errors << error.class }) { |batch| batch.complete!(ApplicationRecord) }
      expect(next_of(errors)).to eq(Leasehold::Error::Misconfigured)
    end
  end

  describe "with relays" do
    it "relays what is committed at once, one process at a time, and the next one when that stops (Q14)" do
      first, second = Array.new(2) { relay.tap(&:start) }
      submit = lambda do
        id = ApplicationRecord.transaction { sheets.submit("7") }.id
        Support::Waiting.wait_for("the request") { state(id) }
      end
      submit.call
      relaying = -> { [first, second].select { |one| one.instance_variable_get(:@relaying) } }
      expect(relaying.call.size).to eq(1)
      relaying.call.first.stop
      submit.call
      expect(relaying.call.size).to eq(1)
    end

    # Starts a server of its own that relays the outbox too. So its requests are those that its relay has handed on.
    #
    # @yieldparam relaying [Support::ClaimsServer]
    def with_server_relay
      url = Support::PostgresCluster.instance.url(Support::Cell[1].database)
      Support::ClaimsServer.run(settings: "[[relays]]\nname = \"cell\"\nurl = #{url.to_json}\n") { |relaying| yield relaying }
    end

    # Submits in a transaction, and waits until a relay has handed the request on to this server.
    def expect_relay_to(server)
      id = ApplicationRecord.transaction { sheets.submit("7") }.id
      queues = queues_of(server.address)
      Support::Waiting.wait_for_answer("the request") { queues.request(id) }
      id
    end

    def holder
      query("SELECT relay FROM leasehold_outbox_holder").first.fetch("relay")
    end

    def wait_for_looks(count)
      looks = Thread::Queue.new
      watch = ->(*, payload) { looks << 1 if payload[:sql].include?("leasehold_outbox_hold") }
      ActiveSupport::Notifications.subscribed(watch, "sql.active_record") { count.times { next_of(looks) } }
    end

    it "waits while a server relays the outbox, and follows it after a kill, as the server follows the gem (Q14)" do
      with_server_relay do |other|
        Support::Waiting.wait_for("the server's relay") { holder }
        waiting = relay.start
        wait_for_looks(2)
        expect(state(expect_relay_to(other))).to be_nil
        waiting.stop
        process = relay_in_process
        other.kill
        expect_relay_to(server)
        other.start
        id = expect_relay_to(server)
        expect(queues_of(other.address).request(id)).to be_nil
        process.signal("KILL")
        expect(state(expect_relay_to(other))).to be_nil
      end
    end

    it "gives way while it can't call its server, and goes on after the other relay has stopped (Q14)" do
      relay.start
      expect_relay_to(server)
      with_server_relay do |other|
        server.kill
        expect_relay_to(other)
        server.start
        other.stop
      end
      expect_relay_to(server)
    end

    it "says between the calls of a long delivery that it works (Q14)" do
      ApplicationRecord.connection.cells_claims_capture(:users)
      ApplicationRecord.transaction { %w[one two].each { |name| Leasehold.queue(name).submit("7") } && insert_users(1..2_500) }
      query("SELECT leasehold_complete(gen_random_uuid(), 'one', '7', 1)")
      rows = Leasehold::Relay::Rows.new(ApplicationRecord)
      captured, others = rows.read(rows.begin).partition { |row| Leasehold::Relay::CapturedClaims.row?(row) }
      beats = []
      Leasehold::Relay::CapturedClaims.new(ApplicationRecord) { |seconds| sleep(seconds) }.run(captured) { beats << "claims" }
      Leasehold::Relay::Delivery.new(Leasehold.configuration).tap { |delivery| delivery.run(others) { beats << "row" } }.close
      expect(beats).to eq(%w[claims] * 3 + %w[row] * others.size)
    end

    # Renames a function of the outbox while the block runs.
    def without(function)
      rename = ->(from, to) { query("ALTER FUNCTION #{from} RENAME TO #{to}") }
      rename.call(function, "leasehold_away")
      yield
    ensure
      rename.call("leasehold_away", function)
    end

    %w[leasehold_outbox_rotate leasehold_outbox_marks leasehold_outbox_forget].each do |function|
      it "delivers all rows while it can't call `#{function}`, and says so (Q14)" do
        stub_const("Leasehold::Relay::CLEAN_SECONDS", 0.05)
        query("INSERT INTO leasehold_outbox_done (request_id) VALUES (gen_random_uuid())")
        failures = Thread::Queue.new
        ActiveSupport::Notifications.subscribed(->(*, payload) { failures << payload }, "relay_failed.leasehold") do
          without(function) do
            relay.start
            2.times do
              2.times { expect_relay_to(server) }
              expect(next_of(failures)).to eq(database: "ApplicationRecord", error: "ActiveRecord::StatementInvalid", message: nil)
            end
          end
        end
        Support::Waiting.wait_for("the marks") { query("SELECT FROM leasehold_outbox_done").empty? }
      end
    end

    it "cleans after the delivery, and says between its calls that it works (Q14)" do
      ids = Array.new(3) { sheets.submit("7").id }
      query("INSERT INTO leasehold_outbox_done (request_id) SELECT unnest('{#{ids.join(",")}}'::uuid[])")
      ApplicationRecord.transaction { sheets.submit("8") }
      called = Thread::Queue.new
      watch = ->(*, payload) { payload[:sql].scan(/leasehold_outbox_(?!hold|release)\w+/) { |name| called << name } }
      ActiveSupport::Notifications.subscribed(watch, "sql.active_record") do
        relay.start
        expect(Array.new(5) { next_of(called) }).to eq(%w[begin read acknowledge rotate marks].map { |name| "leasehold_outbox_#{name}" })
      end
      beats = 0
      delivery = Leasehold::Relay::Delivery.new(Leasehold.configuration)
      expect([delivery.settled(ids) { beats += 1 }, beats]).to eq([[], 3])
      delivery.close
    end

    it "goes on after the server was away, and loses nothing (Q14)" do
      relay.start
      server.kill
      failures = Thread::Queue.new
      id = nil
      ActiveSupport::Notifications.subscribed(->(*, payload) { failures << payload }, "relay_failed.leasehold") do
        id = ApplicationRecord.transaction { sheets.submit("7") }.id
        expect(next_of(failures)).to include(database: "ApplicationRecord", error: /\ALeasehold::Error::/)
      end
      server.start
      Support::Waiting.wait_for_answer("the request") { state(id) }
    end

    it "repeats what a relay that was killed has delivered, without a second request (Q09, Q14)" do
      ids = ApplicationRecord.transaction { Array.new(3) { |number| sheets.submit("7", number.to_s).id } }
      Support::CellProcess.killed(Support::Cell[1], server.address, "stop_after(:submit); Leasehold::Relay.new(ApplicationRecord).drain")
      expect(waiting("7").map(&:id)).to eq(ids)
      calls = []
      ActiveSupport::Notifications.subscribed(->(*) { calls << 1 }, "submit.leasehold") { drain }
      expect([calls.size, waiting("7").map(&:id)]).to eq([1, ids])
      expect(Leasehold::Relay.new(ApplicationRecord).drain).to eq(0)
    end

    def events(name)
      seen = []
      ActiveSupport::Notifications.subscribed(->(*, payload) { seen << payload }, "#{name}.leasehold") { yield }
      seen
    end

    def query(sql)
      Support::Cell[1].query(sql)
    end

    it "sets a request aside whose id was used for another one, says so, and delivers the rest" do
      id = sheets.submit("7", "first").id
      other = ApplicationRecord.transaction { sheets.submit("7", "second", id: id) && sheets.submit("7", "third") }.id
      expect(events(:request_refused) { drain }).to eq([{ queue: "sheets", request: id, code: "IDEMPOTENCY_KEY_REUSED" }])
      expect(waiting("7").map(&:id)).to eq([id, other])
      refused = query("SELECT reason, request_id, convert_from(body, 'UTF8') AS body FROM leasehold_outbox_refused")
      expect(refused).to eq([{ "reason" => "IDEMPOTENCY_KEY_REUSED", "request_id" => id, "body" => "second" }])
      expect(relay.drain).to eq(0)
    end

    it "sets each refused request aside once, if the acknowledgement is repeated" do
      id = sheets.submit("7", "first").id
      ApplicationRecord.transaction { 3.times { sheets.submit("7", "second", id: id) } }
      rows = Leasehold::Relay::Rows.new(ApplicationRecord)
      batch = rows.begin
      read = rows.read(batch)
      refusals = read.map { |row| Leasehold::Relay::Rows::Refusal.new(row.place, row.number, "IT'S") }
      2.times { expect(rows.acknowledge(batch, read.last, refusals)).to be(true) }
      expect(query("SELECT reason FROM leasehold_outbox_refused").map { |row| row["reason"] }).to eq(["IT'S"] * 3)
    end

    it "passes over a completion that comes too late, and keeps its done-marks (Q14)" do
      id = SecureRandom.uuid
      query("SELECT leasehold_complete(gen_random_uuid(), 'sheets', '7', 1, ARRAY['#{id}'::uuid])")
      expect(events(:settle_refused) { drain }).to eq([{ queue: "sheets", code: "SESSION_NOT_FOUND" }])
      expect(query("SELECT request_id FROM leasehold_outbox_done")).to eq([{ "request_id" => id }])
      expect(query("SELECT leasehold_done('sheets', '7', ARRAY['#{id}'::uuid]) AS done")).to eq([{ "done" => "{#{id}}" }])
    end

    it "forgets done-marks of requests that no worker gets any more, and keeps the others (Q14)" do
      stub_const("Leasehold::Relay::CLEAN_SECONDS", 3_600)
      done, kept = sheets.submit("7").id, Leasehold.queue("other").submit("7").id
      start_worker(queues_of(server.address)) { |batch| batch }
      Support::Waiting.wait_for("the end") { state(done) == :complete }
      query("SELECT leasehold_complete(gen_random_uuid(), 'other', '7', 1, ARRAY['#{done}', '#{kept}', gen_random_uuid()]::uuid[])")
      expect(query("SELECT FROM leasehold_outbox_done").size).to eq(0)
      drain
      expect(query("SELECT FROM leasehold_outbox_done").size).to eq(3)
      query("INSERT INTO leasehold_outbox_done (request_id) SELECT gen_random_uuid() FROM generate_series(1, 250)")
      relay.start
      Support::Waiting.wait_for("the marks") { query("SELECT request_id FROM leasehold_outbox_done") == [{ "request_id" => kept }] }
    end

    it "keeps all rows while its certificate does not allow it their queue, and says so (Q14)" do
      Support::Certificates.run do |certificates|
        access = "[[locks.access]]\ncaller = \"cell/1\"\nnamespaces = [\"sheets\"]\n"
        Support::ClaimsServer.run(tls: certificates.server, settings: access) do |secured|
          wrong, right = [2, 1].map { |id| configuration_of(secured.address, {}, tls: certificates.cell(id)) }
          id = ApplicationRecord.transaction { sheets.submit("7") }.id
          seen = Thread::Queue.new
          ActiveSupport::Notifications.subscribed(->(*, payload) { seen << payload }, "relay_failed.leasehold") do
            relay(configuration: wrong).start
            2.times { expect(next_of(seen)).to include(error: "Leasehold::Error::Denied", message: /locks.access/) }
          end
          expect(query("SELECT FROM leasehold_outbox_refused")).to be_empty
          relay(configuration: right).start
          queues = Leasehold::Queues.new(right)
          Support::Waiting.wait_for("the request") { queues.request(id) }
        ensure
          queues&.close
        end
      end
    end

    it "begins no transaction within another one, as in transactional tests" do
      ApplicationRecord.transaction { expect(relay.drain).to eq(0) }
    end

    it "reads committed rows with a time limit, whatever the defaults of the database (Q14)" do
      query("ALTER DATABASE #{Support::Cell[1].database} SET default_transaction_isolation = 'serializable'")
      ApplicationRecord.connection_pool.disconnect!
      log = StringIO.new
      former, ActiveRecord::Base.logger = ActiveRecord::Base.logger, Logger.new(log)
      id = ApplicationRecord.transaction(isolation: :read_committed) { sheets.submit("7") }.id
      drain
      expect(state(id)).to eq(:new)
      calls = log.string.lines.grep(/leasehold_outbox_(begin|read|acknowledge)/)
      limits = log.string.scan(/SET LOCAL statement_timeout = '60s'/)
      expect([calls.size, limits.size]).to eq([4, 4])
    ensure
      ActiveRecord::Base.logger = former
      query("ALTER DATABASE #{Support::Cell[1].database} RESET default_transaction_isolation")
      ApplicationRecord.connection_pool.disconnect!
    end

    # Gives the relay the server's answer for a full lane at each submit to the queue `full`. A lane is full of a million requests.
    def fill_lane(calls)
      allow(calls).to receive(:run).and_wrap_original do |run, method, message|
        limit = { "limit" => "waiting_per_lane" }
        raise Leasehold::Error::Invalid.new("full", code: "LIMIT_EXCEEDED", metadata: limit) if method == :submit && message.queue == "full"

        run.call(method, message)
      end
    end

    it "hands on settles, claims and requests of other queues while a lane is full (Q06, Q07, Q14)" do
      relay = self.relay
      calls = relay.instance_variable_set(:@delivery, Leasehold::Relay::Delivery.new(Leasehold.configuration)).instance_variable_get(:@calls)
      fill_lane(calls)
      ApplicationRecord.connection.cells_claims_capture(:users)
      id = sheets.submit("7").id
      committed = Thread::Queue.new
      start_worker(queues_of(server.address)) do |batch|
        ApplicationRecord.connection_pool.with_connection do
          ApplicationRecord.transaction { Leasehold.queue("full").submit("7") && batch.complete!(ApplicationRecord) }
        end
        committed << true
        sleep
      end
      next_of(committed)
      other = ApplicationRecord.transaction { insert_users([1]) && Leasehold.queue("other").submit("7").id }
      2.times { expect { relay.drain }.to raise_error(Leasehold::Error::Overloaded) }
      expect([state(id), state(other), claimed(User, :username)]).to eq([:complete, :new, ["user-1"]])
      allow(calls).to receive(:run).and_call_original
      relay.drain
      expect(waiting("7", Leasehold.queue("full")).size).to eq(1)
    end

    it "empties what is relayed" do
      size = "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relname ~ '^leasehold_outbox_[12]$'"
      stub_const("Leasehold::Relay::Rows::ROTATED_BYTES", 1)
      stub_const("Leasehold::Relay::CLEAN_SECONDS", 0.05)
      ApplicationRecord.transaction { sheets.submit("7", "x" * 10_000) }
      expect(query(size)).not_to eq([{ "sum" => "0" }])
      relay.start
      Support::Waiting.wait_for("empty partitions") { query(size) == [{ "sum" => "0" }] }
    end

    it "works through pgbouncer in transaction mode, for requests and for claims (Q14, Q06)" do
      Support::Bouncer.run do |bouncer|
        database = Support::Cell[1].database
        bouncer.fill(database)
        ApplicationRecord.connection.cells_claims_capture(:users)
        relay_in_process({ "RAILS_APP_DATABASE_URL" => bouncer.url(database) })
        3.times do |number|
          id = ApplicationRecord.transaction { sheets.submit("7") }.id
          insert_users([number + 1])
          Support::Waiting.wait_for("the request and the claim") { state(id) && claimed(User, :username).size == number + 1 }
        end
      end
    end

    # @return [Support::LockSessions::Script] a process that runs the task
    def relay_in_process(variables = {}, task: "relay")
      environment = Support::Cell[1].environment(server.address).merge(variables)
      process = script(server.address, Support::LockSessions::LONG, <<~RUBY)
        ENV.update(#{environment.inspect})
        require #{File.expand_path("../rails_app/config/environment", __dir__).inspect}
        Leasehold.configuration.tls = { insecure: true }
        Rails.application.load_tasks
        Rake::Task["leasehold:#{task}"].invoke
        puts "ended"
      RUBY
      process.line if task == "work"
      expect(process.line).to eq("relays the outbox of ActiveRecord::Base")
      process
    end

    %w[relay work].each do |task|
      it "runs in the task `#{task}`, and ends at TERM" do
        process = relay_in_process({ "RELAY" => "1" }, task: task)
        id = ApplicationRecord.transaction { sheets.submit("7") }.id
        Support::Waiting.wait_for("the request") { state(id) }
        process.signal("TERM")
        expect(process.line).to eq("ended")
        expect(process.finish).to be(true)
      end
    end
  end
end
