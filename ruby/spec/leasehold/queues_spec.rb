# frozen_string_literal: true

RSpec.describe Leasehold::Queues do
  include Support::LockSessions

  around do |example|
    Support::ClaimsServer.run { |server| @server = server and example.run }
  end

  after { clear_locks }

  let(:queues) { queues_of(@server.address) }
  let(:sheets) { queues.queue("sheets") }
  let(:seen) { Thread::Queue.new }

  # Starts a worker that passes each batch to the example, and works on it as the block does.
  def work(**options, &block)
    start_worker(queues, **options) do |batch|
      seen << batch
      block&.call(batch)
    end
  end

  def bodies(batch)
    batch.requests.map(&:body)
  end

  def state(id)
    queues.request(id)&.state
  end

  def wait_for_state(id, state)
    Support::Waiting.wait_for("the state #{state}") { queues.request(id)&.state == state }
  end

  # Submits until the server answers, which a server that restarts does later.
  def submit_surely(key, body)
    id = SecureRandom.uuid
    Support::Waiting.wait_for("an answer") do
      sheets.submit(key, body, id: id)
    rescue Leasehold::Error::Unavailable
      nil
    end
  end

  it "hands a request to a worker, and completes it with the block (Q01)" do
    submitted = sheets.submit("7", "größer", kind: :create)
    expect([submitted.new?, state(submitted.id)]).to eq([true, :new])
    work
    batch = next_of(seen)
    expect(batch).to have_attributes(queue: "sheets", key: "7", kind: :create, progress: nil, fence: be > 0)
    expect(batch.requests.first).to have_attributes(id: submitted.id, attempt: 1, body: "größer".b)
    wait_for_state(submitted.id, :complete)
    expect(batch).to have_attributes(held?: false, remaining: 0.0, complete: false)
    expect { batch.check! }.to raise_error(Leasehold::Error::SessionLost)
    expect { batch.note_progress("late") }.to raise_error(Leasehold::Error::LockLost)
  end

  it "takes a create alone and before the updates, which it takes as one (Q02)" do
    sheets.submit_all([{ key: "7", body: "create", kind: :create }, *%w[a b c].map { |body| { key: "7", body: body } }])
    work
    taken = Array.new(2) { next_of(seen) }
    expect(taken.map { |batch| [batch.kind, bodies(batch)] }).to eq([[:create, ["create"]], [:update, %w[a b c]]])
    expect(taken.map(&:fence)).to eq(taken.map(&:fence).sort)
  end

  it "takes as many requests as the worker allows" do
    sheets.submit_all(%w[a b c].map { |body| { key: "7", body: body } })
    work(max_requests: 2)
    expect(Array.new(2) { bodies(next_of(seen)) }).to eq([%w[a b], %w[c]])
  end

  it "works on one key in order, while another key goes on (Q07)" do
    stuck = Thread::Queue.new
    sheets.submit("7", "stuck")
    work(credit: 2) { |batch| stuck.pop if batch.key == "7" }
    first = next_of(seen)
    sheets.submit("7", "behind")
    Array.new(3) do |number|
      sheets.submit("8", number.to_s)
      expect(next_of(seen)).to have_attributes(key: "8", requests: [have_attributes(body: number.to_s)])
    end
    expect(first).to be_held
    stuck << 1
    expect(bodies(next_of(seen))).to eq(["behind"])
  end

  it "has at most `credit` batches at a time, and works on them side by side" do
    together, release = Thread::Queue.new, Thread::Queue.new
    work(credit: 2) { together.push(1) && release.pop }
    sheets.submit_all(%w[a b c].map { |key| { key: key } })
    2.times { next_of(together) }
    expect(sheets.lanes(:taken).lanes.size).to eq(2)
    expect(sheets.lanes(:ready).lanes.size).to eq(1)
    3.times { release << 1 }
    next_of(together)
  end

  it "puts what comes meanwhile into the next batch (Q08)" do
    go_on = Thread::Queue.new
    sheets.submit("7", "first")
    work { go_on.pop }
    expect(bodies(next_of(seen))).to eq(["first"])
    sheets.submit_all(%w[a b].map { |body| { key: "7", body: body } })
    2.times { go_on << 1 }
    expect(bodies(next_of(seen))).to eq(%w[a b])
  end

  # Expects UUIDv7 of these milliseconds. Their random bits differ.
  def expect_new_ids(ids, millis)
    expect(ids).to all(match(/\A\h{8}-\h{4}-7\h{3}-[89ab]\h{3}-\h{12}\z/))
    times = ids.map { |id| id.delete("-")[0, 12].hex }
    expect(times.minmax.map { |time| millis.cover?(time) } + [times]).to eq([true, true, times.sort])
    random = ids.map { |id| id.delete("-")[13..].hex }
    constant = random.reduce(:&) | ~random.reduce(:|)
    expect(constant & ((1 << 76) - 1)).to eq(0b11 << 62)
  end

  it "makes ids that begin with the time, by which the history leaves (Q16)" do
    before = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
    ids = [sheets.submit("7"), *sheets.submit_all(Array.new(999) { { key: "7" } })].map(&:id)
    expect_new_ids(ids, before..Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond))
    expect(sheets.requests(:waiting, key: "7", limit: 1_000).requests.map(&:id)).to eq(ids)
  end

  it "keeps the first of two submits with one id, and the first create of a key (Q09)" do
    first = sheets.submit("7", "same", kind: :create)
    again = sheets.submit("7", "same", kind: :create, id: first.id)
    second = sheets.submit("7", "other", kind: :create)
    expect([again, second].map { |request| [request.id, request.new?] }).to eq([[first.id, false]] * 2)
    expect { sheets.submit("7", "different", id: first.id) }.to raise_error(Leasehold::Error::Invalid) { |error|
      expect(error.code).to eq("IDEMPOTENCY_KEY_REUSED")
    }
    expect(sheets.requests(:waiting, key: "7").requests.map(&:id)).to eq([first.id])
  end

  it "makes one request of a submit whose answer was lost (Q09)" do
    Support::TcpProxy.run(@server.address) do |proxy|
      far = queues_of(proxy.address).queue("sheets")
      far.status
      proxy.cut_next_answer { Support::Waiting.wait_for("the first try") { sheets.lanes(:ready).lanes.any? } }
      submitted = far.submit("7", "work")
      expect(sheets.requests(:waiting, key: "7").requests.map(&:id)).to eq([submitted.id])
      expect(submitted).not_to be_new
    end
  end

  it "repeats a settle without harm, and refuses another one (Q10)" do
    sheets.submit("7")
    work(&:complete)
    batch = next_of(seen)
    Support::Waiting.wait_for("the settle") { !batch.held? }
    session = batch.instance_variable_get(:@session)
    settle = ->(outcome) { session.insist(:settle, described_class::Messages.settle(session.id, "sheets", "7", batch.fence, outcome)) }
    settle.call(:completed)
    expect { settle.call(:failed) }.to raise_error(an_instance_of(Leasehold::Error::FencePassed).and(be_a(Leasehold::Error::LockLost)))
  end

  it "is told the loss of its session, and settles nothing after it (Q10, Q11)" do
    go_on, errors = Thread::Queue.new, Thread::Queue.new
    request = sheets.submit("7", "work")
    start_worker(queues, on_error: ->(error, batch) { errors << error if batch }) { |batch| seen.push(batch) && go_on.pop }
    batch = next_of(seen)
    lost = Thread::Queue.new
    batch.on_lost { lost << 1 }
    session = batch.instance_variable_get(:@session)
    session.calls.run(:close_session, Leasehold::Locks::Messages.close(session.id))
    next_of(lost)
    expect(batch).not_to be_held
    go_on << 1
    expect(next_of(errors)).to be_a(Leasehold::Error::LockLost)
    # The worker goes on with another session, and gets the request again.
    expect(next_of(seen).requests).to contain_exactly(have_attributes(id: request.id, attempt: 2))
    go_on << 1
    wait_for_state(request.id, :complete)
  end

  it "gives back what a stop finds unfinished, and counts no attempt (Q11)" do
    running = Thread::Queue.new
    request = sheets.submit("7", "work")
    worker = start_worker(queues) { running.push(1) && Thread::Queue.new.pop }
    next_of(running)
    worker.stop(within: 0)
    expect(queues.request(request.id)).to have_attributes(state: :new, attempts: 0)
    work
    expect(next_of(seen).requests.map(&:attempt)).to eq([1])
  end

  it "lets running work end at a stop, and takes nothing more (Q11)" do
    running, go_on = Thread::Queue.new, Thread::Queue.new
    first, second = %w[7 8].map { |key| sheets.submit(key) }
    worker = start_worker(queues) { running.push(1) && go_on.pop }
    next_of(running)
    stop = Thread.new { worker.stop(within: 60) }
    Support::Waiting.wait_for("the stop to wait") { worker.instance_variable_get(:@taking).batches.closed? }
    go_on << 1
    stop.join
    expect([state(first.id), queues.request(second.id)]).to match([:complete, have_attributes(state: :new, attempts: 0)])
  end

  it "works until a signal, and restores the handler that the signal had (Q11)" do
    former = proc {}
    default = Signal.trap("USR2", former)
    stops = Thread::Queue.new
    request = sheets.submit("7")
    working = Thread.new { queues.work("sheets", signals: ["USR2"], on_stop: -> { stops << 1 }) { |batch| seen << batch } }
    next_of(seen)
    wait_for_state(request.id, :complete)
    Process.kill("USR2", Process.pid)
    expect([working.value, stops.size, Signal.trap("USR2", default)]).to eq([nil, 1, former])
    sheets.submit("7")
    expect([seen.size, sheets.lanes(:ready).lanes.size]).to eq([0, 1])
  end

  it "gives back what does not end even when its thread is killed (Q11)" do
    running, go_on = Thread::Queue.new, Thread::Queue.new
    request = sheets.submit("7", "work")
    worker = start_worker(queues) do
      running.push(1) && Thread::Queue.new.pop
    ensure
      go_on.pop
    end
    next_of(running)
    worker.stop(within: 0)
    expect(queues.request(request.id)).to have_attributes(state: :new, attempts: 0)
    go_on << 1
    worker.instance_variable_get(:@threads).each(&:join)
    expect(queues.request(request.id)).to have_attributes(state: :new, attempts: 0)
  end

  it "gives back what came when the stream was cut (Q11)" do
    request = sheets.submit("7")
    configuration = configuration_of(@server.address, Support::LockSessions::LONG, {})
    taking = described_class::Taking.new("sheets", configuration, -> { queues.send(:calls) }, 1, 1)
    session = taking.send(:live_session)
    take = described_class::Messages.take(session.id, "sheets", 1, 1, [])
    session.calls.stream(:take, take, 60) { |message| message.news == :batch }
    expect(state(request.id)).to eq(:in_progress)
    taking.close
    expect(queues.request(request.id)).to have_attributes(state: :new, attempts: 0)
  end

  it "takes no request before its time, and prefers those of higher priority (Q12)" do
    delayed = sheets.submit("delayed", delay: 3_600)
    sheets.pause
    sheets.submit("low")
    sheets.submit("high", priority: 9)
    sheets.resume
    work
    expect(Array.new(2) { next_of(seen).key }).to eq(%w[high low])
    expect(sheets.lanes(:delayed).lanes.map(&:key)).to eq(["delayed"])
    expect(queues.request(delayed.id).not_before).to be > Time.now + 3_000
  end

  it "tries a failed request again, and ends in error, from where it can be submitted again (Q13)" do
    errors = Thread::Queue.new
    request = sheets.submit("7", "bad", max_attempts: 2)
    attempts = 0
    worker = start_worker(queues, on_error: ->(error, batch) { errors << [error.class, batch.requests.map(&:attempt)] }) do |batch|
      attempts += 1
      batch.fail(retry_after: 0) if attempts == 1
      raise NotImplementedError if attempts <= 2
    end
    expect(Array.new(2) { next_of(errors) }).to eq([[NotImplementedError, [1]], [NotImplementedError, [2]]])
    wait_for_state(request.id, :error)
    expect(sheets.requests(:settled).requests.map(&:id)).to eq([request.id])
    expect(queues.resubmit(request.id)).to eq(:error)
    wait_for_state(request.id, :complete)
    expect(queues.resubmit(request.id)).to eq(:complete)
    worker.stop
  end

  it "leaves the time of the next attempt to the server (Q13)" do
    request = sheets.submit("7")
    start_worker(queues) { raise IndexError }
    found = Support::Waiting.wait_for("a failure") do
      queues.request(request.id).then { |seen| seen if seen.state == :new && seen.attempts == 1 }
    end
    expect(found.not_before - found.updated_at).to be_within(0.2).of(1)
  end

  it "pauses and resumes a lane and a queue (Q19)" do
    sheets.pause("7")
    sheets.submit_all(%w[7 8].map { |key| { key: key } })
    expect(sheets.lanes(:paused).lanes).to contain_exactly(have_attributes(key: "7", paused?: true, waiting: 1))
    work
    expect(next_of(seen).key).to eq("8")
    sheets.resume("7")
    expect(next_of(seen).key).to eq("7")

    sheets.pause
    expect(sheets.status).to have_attributes(paused?: true, limit: nil)
    sheets.submit("9")
    expect(sheets.lanes(:ready).lanes.map(&:key)).to eq(["9"])
    sheets.resume
    expect(next_of(seen).key).to eq("9")
  end

  it "has at most as many lanes in progress as its limit (Q17)" do
    sheets.limit = 1
    go_on = Thread::Queue.new
    sheets.submit_all(%w[7 8].map { |key| { key: key } })
    work(credit: 2) { go_on.pop }
    next_of(seen)
    expect(sheets.status).to have_attributes(limit: 1, taken: 1)
    expect(sheets.lanes(:ready).lanes.size).to eq(1)
    2.times { go_on << 1 }
    next_of(seen)
    sheets.limit = nil
    expect(sheets.status.limit).to be_nil
  end

  it "hands the progress to the next worker (Q20)" do
    sheets.submit("7")
    noted = 0
    work { |batch| (noted += 1) == 1 && batch.note_progress("half") && batch.give_back }
    first, second = next_of(seen), next_of(seen)
    expect([first.progress, second.progress]).to eq([nil, "half"])
  end

  it "withdraws a request that waits" do
    request = sheets.submit("7", "body")
    expect(queues.request(request.id, body: true).body).to eq("body")
    expect([queues.withdraw(request.id), queues.withdraw(request.id), queues.request(request.id)]).to eq([:new, nil, nil])
  end

  it "lists requests and lanes in pages" do
    ids = sheets.submit_all(Array.new(3) { { key: "7" } }).map(&:id)
    first = sheets.requests(:waiting, key: "7", limit: 2)
    rest = sheets.requests(:waiting, key: "7", limit: 2, cursor: first.cursor)
    expect([first, rest].map { |page| page.requests.map(&:id) }).to eq([ids.take(2), ids.drop(2)])
    expect(rest.cursor).to be_nil

    sheets.submit("8")
    lanes = sheets.lanes(:ready, limit: 1)
    expect([lanes, sheets.lanes(:ready, cursor: lanes.cursor)].map { |page| page.lanes.map(&:key) }).to eq([["7"], ["8"]])
  end

  it "goes on over a restart of the server, and loses or doubles no batch (Q04, Q10)" do
    go_on, done = Thread::Queue.new, Thread::Queue.new
    sheets.submit("7", "held")
    start_worker(queues) { |batch| seen.push(batch) && go_on.pop && done.push([batch.key, batch.complete]) }
    held = next_of(seen)
    @server.kill
    go_on << 1
    @server.start
    expect(next_of(done)).to eq(["7", true])
    10.times do |number|
      %i[stop start].each { |change| @server.public_send(change) } if number == 5
      submit_surely("8", number.to_s)
      expect(bodies(next_of(seen))).to eq([number.to_s])
      go_on << 1
      next_of(done)
    end
    expect([held.held?, seen.size, sheets.requests(:settled).requests.size]).to eq([false, 0, 11])
  end

  it "gets a batch again that was lost on its way, under the same fence and attempt (Q10, Q11)" do
    Support::TcpProxy.run(@server.address) do |proxy|
      held = Thread::Queue.new
      start_worker(queues_of(proxy.address), credit: 2) { |batch| seen.push(batch) && held.pop }
      sheets.submit("7", "first")
      first = next_of(seen)
      taken = nil
      proxy.cut_next_answer { taken = sheets.lanes(:taken).lanes }
      request = sheets.submit("8", "second")
      second = next_of(seen)
      # The batch was the session's already when the connection broke.
      expect(taken.map(&:fence)).to contain_exactly(first.fence, second.fence)
      expect(second.requests).to contain_exactly(have_attributes(id: request.id, attempt: 1))
      2.times { held << 1 }
      wait_for_state(request.id, :complete)
      expect(seen).to be_empty
    end
  end

  it "ends a request in error whose attempts are over, though its workers never settle it (Q03)" do
    request = sheets.submit("7", max_attempts: 2)
    start_worker(queues) do |batch|
      seen << batch
      session = batch.instance_variable_get(:@session)
      session.calls.run(:close_session, Leasehold::Locks::Messages.close(session.id))
    end
    expect(Array.new(2) { next_of(seen).requests.first.attempt }).to eq([1, 2])
    wait_for_state(request.id, :error)
    expect(seen).to be_empty
  end

  {
    "no key" => [[nil], "INVALID_UPDATE"], "a record as the key" => [[Object.new], "INVALID_UPDATE"],
    "an empty key" => [[""], "INVALID_UPDATE"], "a long key" => [["secret" * 100], "LIMIT_EXCEEDED"],
    "a body that is no text" => [["7", :secret], "INVALID_UPDATE"], "a long body" => [["7", "secret" * 11_000], "LIMIT_EXCEEDED"],
    "an unknown kind" => [["7", "secret", { kind: :destroy }], "INVALID_UPDATE"],
    "a high priority" => [["7", "secret", { priority: 10 }], "LIMIT_EXCEEDED"],
    "a negative delay" => [["7", "secret", { delay: -1 }], "INVALID_UPDATE"],
    "no attempt" => [["7", "secret", { max_attempts: 0 }], "INVALID_UPDATE"],
    "an id that is none" => [["7", "secret", { id: "secret" }], "INVALID_UPDATE"]
  }.each do |name, (arguments, code)|
    it "refuses #{name}, and quotes nothing (Q22)" do
      *texts, options = arguments.last.is_a?(Hash) ? arguments : [*arguments, {}]
      expect { sheets.submit(*texts, **options) }.to raise_error(Leasehold::Error::Invalid) { |error|
        expect(error.code).to eq(code)
        expect(error.full_message).not_to include("secretsecret")
        expect(error.message).not_to include("secret")
      }
      expect(sheets.lanes(:ready).lanes).to be_empty
    end
  end

  it "shows and logs no key, no body and no message of an error (Q22)" do
    log = StringIO.new
    logged = queues_of(@server.address, logger: Logger.new(log))
    start_worker(logged) { |batch| seen.push(batch) && raise(IndexError, "secret") }
    request = sheets.submit("secret", "secret")
    batch = next_of(seen)
    Support::Waiting.wait_for("the log") { log.string.include?("IndexError") }
    shown = [batch, batch.requests, queues, sheets, queues.request(request.id, body: true), sheets.lanes(:delayed), log.string]
    expect(shown.map(&:inspect).join).not_to include("secret")
  end

  it "raises an error after which no later take can succeed" do
    expect { queues.work("..") { nil } }.to raise_error(Leasehold::Error::Invalid)
    expect { queues.work("sheets", credit: 0) { nil } }.to raise_error(ArgumentError)
    expect { queues.work("sheets") }.to raise_error(ArgumentError)
    expect { queues.work { nil } }.to raise_error(ArgumentError)
  end
end
