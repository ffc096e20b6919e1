# frozen_string_literal: true

require "concurrent"
require "active_support"
require "active_support/notifications"

RSpec.describe Leasehold::Client do
  around { |example| Support::ClaimsServer.run { |server| @server = server and example.run } }

  let(:server) { @server }
  let(:client) { client_of(server.address) }
  let(:other_cell) { client_of(server.address, cell_id: 2) }

  def events
    seen = []
    subscription = ActiveSupport::Notifications.subscribe(/\.leasehold\z/) { |event| seen << event }
    yield
    seen
  ensure
    ActiveSupport::Notifications.unsubscribe(subscription)
  end

  def rejection
    yield
    raise "no error was raised"
  rescue Leasehold::Error => e
    e
  end

  it "begins, commits and reads back claims (B20, B13, B32)" do
    claim = username("Alice")
    lease = client.begin_update(creates: [claim])
    expect(lease.fence).to be >= 1
    expect(client.list_leases.leases.map(&:uuid)).to eq([lease.uuid])

    client.commit_update(lease.uuid)
    expect(client.list_leases.leases).to be_empty
    page = client.list_records(source_type: Support::Claims::USERS_TABLE, bucket_types: [Support::Claims::USERNAMES])
    expect(page.records.map(&:claim)).to eq([claim])
    expect(page).not_to be_truncated
    expect(page.server_time).to be_within(600).of(Time.now)
    expect(client.list_leases.server_time).to be >= page.server_time
    expect(client.get_record(claim.bucket_type, "ALICE").cell_id).to eq(1)

    later = client.begin_update(destroys: [claim.to_h])
    expect(later.fence).to be > lease.fence
    client.commit_update(later.uuid)
    expect(rejection { client.get_record(claim.bucket_type, "alice") }).to be_a(Leasehold::Error::NotFound)
  end

  it "sends the organization with a begin, and with the recovery of its lease (B09)" do
    update = { creates: [username("alice")], destroys: [], idempotency_key: "once" }
    lease = client.begin_update(**update, organization_id: 5)
    expect(client.begin_update(**update, organization_id: 5)).to eq(lease)
    expect(client.recover_lease(**update, organization_id: 5)).to eq(lease)
    [{}, { organization_id: nil }, { organization_id: 6 }].each do |other|
      expect(rejection { client.begin_update(**update, **other) }).to have_attributes(code: "IDEMPOTENCY_KEY_REUSED")
      expect(rejection { client.recover_lease(**update, **other) }).to have_attributes(code: "IDEMPOTENCY_KEY_REUSED")
    end
    expect(rejection { client.begin_update(creates: [username("bob")], organization_id: -1) }).to be_a(Leasehold::Error::Invalid)
  end

  it "refuses an empty list of types, which the server would take for all types (V11)" do
    [[], nil].each do |none|
      expect { client.list_records(source_type: Support::Claims::USERS_TABLE, bucket_types: none) }
        .to raise_error(Leasehold::Error::Invalid, /`bucket_types` is empty/)
    end
  end

  it "refuses a server with another store, and changes nothing" do
    own = client_of(server.address, store_id: server.store_id.upcase)
    own.commit_update(own.begin_update(creates: [username("alice")]).uuid)
    expected = "00000000-0000-0000-0000-000000000000"
    other = client_of(server.address, store_id: expected)
    calls = [
      -> { other.begin_update(creates: [username("bob")]) },
      -> { other.begin_update(creates: [username("alice")]) },
      -> { other.commit_update(SecureRandom.uuid) },
      -> { other.list_leases }
    ]
    calls.each do |call|
      error = rejection(&call)
      expect(error).to be_a(Leasehold::Error::OtherStore).and have_attributes(code: "OTHER_STORE")
      expect(error.message).to include(server.store_id, expected)
    end
    expect(own.list_leases.leases).to be_empty
    expect(rejection { own.get_record(Support::Claims::USERNAMES, "bob") }).to be_a(Leasehold::Error::NotFound)
  end

  it "refuses a server that does not tell its store, if one is expected" do
    store = described_class::ExpectedStore.new(server.store_id)
    expect { store.check({}) }.to raise_error(Leasehold::Error::OtherStore, /does not tell its store.*#{server.store_id}/)
    expect(store.mismatch({})).to be_nil
    expect(described_class::ExpectedStore.new(nil).check({})).to be_nil
  end

  it "rolls a lease back (B21)" do
    lease = client.begin_update(creates: [username("alice")])
    client.rollback_update(lease.uuid)
    expect(client.list_leases.leases).to be_empty
    expect { other_cell.begin_update(creates: [username("alice")]) }.not_to raise_error
  end

  it "lists every rejected claim by list, position, type and code (B10)" do
    theirs = other_cell.begin_update(creates: [username("taken"), username("theirs")])
    other_cell.commit_update(theirs.uuid)
    other_cell.begin_update(creates: [username("busy")])
    creates = [username("free"), username("Taken"), username("BUSY")]

    error = rejection { client.begin_update(creates: creates, destroys: [username("absent"), username("theirs")]) }
    expect(error).to be_a(Leasehold::Error::NotOwner)
    expect(error.rejected.map(&:to_a)).to contain_exactly(
      [:create, 1, 4, "CLAIM_TAKEN"], [:create, 2, 4, "CLAIM_BUSY"],
      [:destroy, 0, 4, "CLAIM_NOT_FOUND"], [:destroy, 1, 4, "NOT_OWNER"]
    )
  end

  it "selects the class of an error by its code" do
    held = username("held", id: 7)
    client.commit_update(client.begin_update(creates: [held]).uuid)
    busy = client.begin_update(creates: [username("busy")])
    rolled_back = client.begin_update(creates: [username("gone")]).uuid.tap { |uuid| client.rollback_update(uuid) }
    committed = client.begin_update(creates: [username("kept")]).uuid.tap { |uuid| client.commit_update(uuid) }
    {
      Leasehold::Error::Taken => -> { client.begin_update(creates: [held]) },
      Leasehold::Error::Busy => -> { client.begin_update(creates: [username("busy")]) },
      Leasehold::Error::Changed => -> { client.begin_update(destroys: [username("held", id: 8)]) },
      Leasehold::Error::NotFound => -> { client.begin_update(destroys: [username("absent")]) },
      Leasehold::Error::NotOwner => -> { other_cell.commit_update(busy.uuid) },
      Leasehold::Error::Invalid => -> { client.begin_update(creates: [username("two words")]) },
      Leasehold::Error::RolledBack => -> { client.commit_update(rolled_back) },
      Leasehold::Error::Committed => -> { client.rollback_update(committed) }
    }.each { |error, call| expect(&call).to raise_error(error) }
  end

  it "returns when to retry for temporary errors only (B03)" do
    client.begin_update(creates: [username("alice")])
    busy = rejection { other_cell.begin_update(creates: [username("alice")]) }
    expect(busy).to be_temporary
    expect(busy.retry_after_seconds).to be > 0
    invalid = rejection { client.begin_update(creates: [username("two words")]) }
    expect(invalid).not_to be_temporary
    expect(invalid.retry_after_seconds).to be_nil
    expect(invalid.create_positions).to eq([0])
  end

  it "rejects a claim that does not fit into a message by its position, without its value" do
    wrong = username("alice").tap { |claim| claim.subject_id = "secret" }
    error = rejection { client.begin_update(creates: [username("bob"), wrong]) }
    expect(error).to be_a(Leasehold::Error::Invalid)
    expect(error.create_positions).to eq([1])
    expect(error.message).not_to include("secret")
  end

  it "pages through leases with the server's cursor (B31)" do
    uuids = Array.new(5) { |n| client.begin_update(creates: [username("user#{n}")]).uuid }
    seen = []
    cursor = nil
    loop do
      page = client.list_leases(cursor: cursor, limit: 2)
      seen.concat(page.leases.map(&:uuid))
      break unless (cursor = page.cursor)
    end
    expect(seen).to eq(uuids)
    expect(client.list_leases(created_after: Time.now + 60).leases).to be_empty
  end

  it "publishes an ActiveSupport event per call, without claimed values" do
    seen = events do
      lease = client.begin_update(creates: [username("alice")])
      rejection { client.begin_update(creates: [username("alice")], destroys: [username("bob")]) }
      client.commit_update(lease.uuid)
    end
    expect(seen.map(&:name)).to eq(%w[begin_update.leasehold begin_update.leasehold commit_update.leasehold])
    expect(seen.map { |event| event.payload.slice(:code, :tries, :creates, :destroys) }).to eq(
      [
        { code: "OK", tries: 1, creates: 1, destroys: 0 },
        { code: "CLAIM_NOT_FOUND", tries: 1, creates: 1, destroys: 1 },
        { code: "OK", tries: 1 }
      ]
    )
    expect(seen.map(&:duration)).to all(be > 0)
    expect(seen.map { |event| event.payload.inspect }.join).not_to match(/alice|bob/i)
  end

  it "warms up without changing anything" do
    expect(client.warm_up).to be_nil
    expect(client.list_leases.leases).to be_empty
  end

  context "if answers are lost" do
    around { |example| Support::TcpProxy.run(server.address) { |proxy| @proxy = proxy and example.run } }

    let(:proxy) { @proxy }
    let(:proxied) { client_of(proxy.address).tap(&:warm_up) }

    def begun
      client.list_leases.leases
    end

    it "gets the same lease from the second try after the connection was cut (B09)" do
      proxied
      proxy.cut_next_answer { wait_for("the first try's lease") { begun.any? } }
      lease = nil
      event = events { lease = proxied.begin_update(creates: [username("alice")]) }
              .find { |published| published.name == "begin_update.leasehold" && published.payload[:tries] == 2 }
      expect(event).not_to be_nil
      expect(begun.map(&:uuid)).to eq([lease.uuid])
      expect(lease.fence).to eq(1)
    end

    it "pauses before the second try if the server is unreachable" do
      proxied
      proxy.close
      seen = events { 3.times { expect { proxied.commit_update(SecureRandom.uuid) }.to raise_error(Leasehold::Error::Unavailable) } }
      expect(seen.map { |event| event.payload[:tries] }).to all(eq(2))
      expect(seen.map(&:duration)).to all(be >= 10)
    end

    it "gets the same lease from the second try after the answer came late (B09)" do
      # The tries after the second one are for a machine that pauses for longer than a try may take.
      patient = client_of(proxy.address, tries: 100).tap(&:warm_up)
      proxy.hold_answers
      caller = Thread.new { patient.begin_update(creates: [username("alice")], deadline_seconds: 2) }
      wait_for("the first try's lease") { begun.any? }
      sent = proxy.client_bytes
      wait_for("the second try") { proxy.client_bytes > sent }
      proxy.release_answers
      expect(begun.map(&:uuid)).to eq([caller.value.uuid])
    end

    it "fails after two tries, each within its deadline" do
      proxied
      proxy.hold_answers
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      seen = events do
        expect { proxied.commit_update(SecureRandom.uuid, deadline_seconds: 0.3) }.to raise_error(Leasehold::Error::DeadlineExceeded)
      end
      # Two tries with the deadline of the client take a minute.
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - start).to be_between(0.55, 50)
      expect(seen.map { |event| event.payload.slice(:code, :tries) }).to eq([{ code: "DEADLINE_EXCEEDED", tries: 2 }])
    end

    it "refuses begins over the limit at once, but commits still pass" do
      limited = client_of(proxy.address, max_concurrent_begins: 1).tap(&:warm_up)
      settled = client.begin_update(creates: [username("before")]).uuid
      proxy.hold_answers
      under_way = Thread.new { limited.begin_update(creates: [username("alice")]) }
      wait_for("the first begin") { begun.size == 2 }
      expect { limited.begin_update(creates: [username("bob")]) }.to raise_error(Leasehold::Error::Overloaded) do |error|
        expect(error).to be_temporary
        expect(error.retry_after_seconds).to be > 0
      end
      commit = Thread.new { limited.commit_update(settled) }
      wait_for("the commit") { begun.size == 1 }
      proxy.release_answers
      expect([under_way.value.fence, commit.value]).to eq([2, nil])
      expect { limited.begin_update(creates: [username("bob")]) }.not_to raise_error
    end
  end

  context "if the server is stopped" do
    let(:client) { client_of(server.address, circuit_failures: 2, circuit_open_seconds: 3_600) }

    def tries
      events { rejection { yield } }.map { |event| event.payload[:tries] }
    end

    it "reconnects by itself" do
      lease = client.begin_update(creates: [username("alice")])
      server.stop
      expect(tries { client.commit_update(lease.uuid) }).to eq([2])
      server.start
      wait_for("the commit") { client.commit_update(lease.uuid) || true rescue nil }
      expect(client.list_leases.leases).to be_empty
    end

    it "opens the circuit for begins, still commits, and sends one begin as a probe" do
      lease = client.begin_update(creates: [username("alice")])
      server.kill
      2.times { expect(tries { client.begin_update(creates: [username("bob")]) }).to eq([2]) }
      expect { client.begin_update(creates: [username("bob")]) }.to raise_error(Leasehold::Error::CircuitOpen)
      expect(tries { client.begin_update(creates: [username("bob")]) }).to eq([0])
      expect(tries { client.commit_update(lease.uuid) }).to eq([2])
      server.start
      wait_for("the commit") { client.commit_update(lease.uuid) || true rescue nil }
      later = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 3_600
      allow_any_instance_of(Leasehold::Client::CircuitBreaker).to receive(:now).and_return(later)
      wait_for("a begin") { client.begin_update(creates: [username("bob")]) rescue nil }
    end
  end
end
