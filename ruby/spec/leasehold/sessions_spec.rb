# frozen_string_literal: true

require "timeout"

RSpec.describe "sessions" do
  include Support::VerificationRuns

  describe Leasehold::Reconciliation do
    let(:run) { described_class.new(stale_after_seconds: 600, rows_per_page: 10) }
    let(:now) { Time.now }
    let(:uuids) { Array.new(3) { SecureRandom.uuid } }

    def outstanding(uuid, age)
      Leasehold::OutstandingLease.new(uuid: uuid, created_at: now - age, updated_at: now - age)
    end

    it "commits leases with rows, rolls back leases without, and leaves fresh ones alone (R01)" do
      ages = [700, 700, 10]
      leases = uuids.zip(ages).map { |uuid, age| outstanding(uuid, age) }
      expect(run.next).to eq(described_class::ListLeases.new(nil))
      run.leases(Leasehold::LeasePage.new(leases: leases, cursor: nil, server_time: now))
      expect(run.next).to eq(described_class::FindRows.new(uuids.sort))
      run.rows([[uuids[0], now - 700]], now: now)
      settled = Array.new(2) { run.next.tap { run.settled(:done) } }
      expect(settled).to contain_exactly(
        described_class::Settle.new(uuids[0], :committed), described_class::Settle.new(uuids[1], :rolled_back)
      )
      expect(run.next).to eq(described_class::DeleteRow.new(uuids[0], :committed))
      run.deleted
      expect(run.next).to eq(described_class::ListRows.new(nil, 600.0, 10))
      run.rows([], now: now)
      expect(run.next).to be_a(described_class::Done)
      expect(run.summary).to include(leases_seen: 3, committed: 1, rolled_back: 1, rows_deleted: 1, failed: 0)
    end

    it "passes cursors and positions through, and classifies leases by the server's answers" do
      run.leases(Leasehold::LeasePage.new(leases: [], cursor: "next", server_time: now))
      expect(run.next).to eq(described_class::ListLeases.new("next"))
      run.leases(Leasehold::LeasePage.new(leases: [], cursor: nil, server_time: now))
      old = Time.at(1_700_000_000, 123_456, :microsecond).utc
      rows = Array.new(10) { [SecureRandom.uuid, old] }
      run.rows(rows, now: now)
      answers = [:rolled_back, :not_found, :failed] + [:committed] * 7
      answers.each { |answer| answer == :failed ? run.failed : run.settled(answer) }
      fates = Array.new(9) { run.next.tap { run.deleted }.fate }
      expect(fates).to eq([:lost, :forgotten] + [:committed] * 7)
      expect(run.next.after).to eq([old, rows.last.first])
      expect(run.summary).to include(lost: [rows.first.first], failed: 1)
    end

    it "refuses the result of another step, and stays unchanged" do
      expect { run.deleted }.to raise_error(Leasehold::Error::Internal) { |error| expect(error.code).to eq("OUT_OF_TURN") }
      expect(run.next).to eq(described_class::ListLeases.new(nil))
    end
  end

  describe Leasehold::Verification do
    it "corrects differences, in whichever form rows are fed (V01)" do
      records = [record(1, "alice"), record(2, "bob"), record(9, "gone")]
      forms = {
        rows: ->(run) { run.rows([row(1, "alice"), row(2, "bobby"), row(3, "carol")], now: now) },
        arrays: ->(run) { run.attributes([[1, "alice", old], [2, "bobby", old], [3, "carol", old]], now: now, **arrays) },
        hashes: lambda do |run|
          names = { 1 => "alice", 2 => "bobby", 3 => "carol" }
          run.attributes(names.map { |id, name| { "id" => id, "name" => name, "at" => old } }, now: now, **hashes)
        end
      }
      updates = forms.transform_values { |feed| updates_of(run(records, &feed)) }
      expect(updates[:arrays]).to eq(updates[:rows])
      expect(updates[:hashes]).to eq(updates[:rows])
      created, destroyed = updates[:rows]
      expect(created.creates).to eq([username("bobby", id: 2), username("carol", id: 3)])
      expect(destroyed.destroys.map(&:bucket_value)).to eq(%w[bob gone])
    end

    it "encodes updates as the client encodes them" do
      run = run([record(2, "bob"), record(9, "gone")]) { |session| session.rows([row(1, "é" * 500), row(2, "bobby")], now: now) }
      messages = Leasehold::Client::Messages.new(7)
      updates = updates_of(run)
      expect(updates.map(&:creates).flatten).to contain_exactly(username("é" * 500, id: 1), username("bobby", id: 2))
      updates.each do |update|
        sent = Leasehold::Client::Messages::V1::BeginUpdateRequest.decode(messages.begin_encoded(update.encoded))
        expect(sent).to eq(messages.begin_update(update.creates, update.destroys))
        expect([update.create_count, update.destroy_count]).to eq([update.creates.size, update.destroys.size])
      end
    end

    it "claims integers in decimal, nothing for nil, and leaves recent rows alone (V02)" do
      run = run([], bucket_types: [4, 10]) do |session|
        claims = [[4, 1, 4, 0], [10, 0, 4, 0]]
        rows = [[1, nil, old], [2, "new", now - 10], [3, "carol", nil]]
        session.attributes(rows, key: 0, updated_at: 2, claims: claims, now: now)
      end
      created = updates_of(run).first.creates.map { |claim| [claim.bucket_type, claim.bucket_value] }
      expect(created).to eq([[10, "1"], [4, "carol"], [10, "3"]])
      expect(run.report).to include(rows: 3, rows_recent: 1)
    end

    it "accepts times in all forms" do
      zoned = Class.new { define_method(:to_time) { Time.now - 10 } }.new
      [now - 10, zoned, ((now.to_f - 10) * 1e6).to_i].each do |recent|
        run = run([]) { |session| session.rows([row(1, "alice", at: recent)], now: now) }
        expect(run.report).to include(rows_recent: 1, missing: 0)
      end
    end

    it "reports hashes instead of values, and continues from a checkpoint (V07, V09)" do
      run = run([], dry_run: true, rows_per_page: 1, bound: "\0".b * 8) do |session|
        session.rows([[("\0" * 8).b, old, [[4, "alice", 4, 1]]]], now: now)
      end
      expect(run.next).to be_a(described_class::PageDone)
      resumed = verification(checkpoint: run.checkpoint, dry_run: true)
      expect(run.report).to include(pages: 1, missing: 1)
      expect(resumed.next).to be_a(described_class::FindBound)
      resumed.bound(nil)
      resumed.records(Leasehold::RecordPage.new(records: [], truncated: false, server_time: now))
      resumed.rows([row(5, "bob")], now: now)
      findings = finish(resumed).take_findings
      expect(findings).to all(match(outcome: "created", bucket_type: 4, source_id: /\A\h{16}\z/, value_hash: /\A\h{16}\z/))
      expect(findings.map { |finding| finding[:source_id] }).to end_with("0000000000000005")
      expect(resumed.checkpoint).to be_nil
      expect { verification(checkpoint: "{}") }.to raise_error(Leasehold::Error::Invalid)
    end

    it "is refused before it destroys more than ten claims that are over a tenth of all, and goes on with a larger share (V11)" do
      records = (1..20).map { |id| record(id, "name#{id}") }
      refused = run(records) { |session| session.rows([row(20, "name20")], now: now) }
      refused.proceed
      refused.rows([], now: now)
      expect(refused.next).to eq(described_class::Refused.new(19, 20, 0.95))

      told = verification(checkpoint: refused.checkpoint, max_destroy_share: 0.95)
      expect(finish(told).report).to include(destroyed: 19)

      expect { verification(max_destroy_share: 1.5) }.to raise_error(/from 0 to 1/)
    end

    it "leaves out the claims that a refusal rejects (V06)" do
      run = run([]) { |session| session.rows([row(1, "alice"), row(2, "bob")], now: now) }
      expect(next_update(run).creates.size).to eq(2)
      rejected = Leasehold::RejectedClaim.new(list: :create, position: 0, bucket_type: 4, code: "CLAIM_BUSY")
      run.updated(Leasehold::Error::Busy.new("busy", code: "CLAIM_BUSY", rejected: [rejected]))
      expect(next_update(run).creates.map(&:bucket_value)).to eq(["bob"])
      run.updated(Leasehold::Error::Unavailable.new("away"))
      expect(finish(run).report).to include(failed: 1, created: 1)
    end

    it "reads rows again under the lease, and commits only unchanged claims (V03)" do
      run = run([]) { |session| session.rows([row(1, "alice"), row(2, "bob")], now: now) }
      next_update(run)
      run.updated(:begun)
      expect(run.next).to eq(described_class::ReadAgain.new([1, 2].map { |id| [id].pack("Q>") }))
      run.rows([row(1, "alice"), row(2, "bobby")], now: now)
      expect(run.next).to be_a(described_class::RollBack)
      run.updated(:settled)
      expect(run.next.creates.map(&:bucket_value)).to eq(["alice"])
      run.updated(:begun)
      run.rows([row(1, "alice")], now: now)
      expect(run.next).to be_a(described_class::Commit)
      expect { run.updated(:begun) }.to raise_error(Leasehold::Error) { |error| expect(error.code).to eq("OUT_OF_TURN") }
      run.updated(:settled)
      expect(finish(run).report).to include(created: 1, changed: 1, updates: 2)
    end

    it "decodes records as the client decodes them" do
      records = Array.new(50) { |n| record(n + 1, "user#{n}") }
      records[7].status = :LEASE_CREATING
      records[9].updated_at = now
      [[], records].product([false, true]).each do |sent, truncated|
        next if sent.empty? && truncated

        page = received_page(sent, truncated: truncated)
        runs = [page, Leasehold::RecordPage.new(records: page.records, truncated: page.truncated?, server_time: now)].map do |form|
          verification(dry_run: true, hash_seed: 1).tap do |run|
            run.bound(nil)
            run.records(form)
            run.rows([row(1, "other")], now: now)
          end
        end
        expect(runs[0].report).to eq(runs[1].report)
        expect(page.records).to eq(sent)
        next if truncated

        expect(runs.map { |run| finish(run).take_findings }.uniq.size).to eq(1)
        expect(runs[0].report).to include(records_held: 1, records_recent: 1) unless sent.empty?
      end
    end

    it "refuses an answer that cannot be decoded" do
      run = verification
      run.bound(nil)
      page = Leasehold::Client::ReceivedPage.new("\xff\xff".b, now, nil)
      expect { run.records(page) }.to raise_error(Leasehold::Error::Internal) { |error| expect(error.code).to eq("INVALID_ROWS") }
    end

    it "refuses malformed rows" do
      {
        [[1, "alice", old]] => "rows of another form",
        [row(2, "bob"), row(1, "alice")] => "rows out of order",
        [[("\0" * 8).b, old, [[4, "\xff", 4, 1]]]] => "a value that is not UTF-8",
        [[("\0" * 8).b, "yesterday", []]] => "a String as time",
        [:row] => "a Symbol as row",
        [[("\0" * 8).b, old, [[5, "alice", 4, 1]]]] => "another bucket type"
      }.each do |rows, mistake|
        expect { run([]) { |session| session.rows(rows, now: now) } }.to raise_error(StandardError), mistake
      end
      expect { run([]) { |session| session.attributes([{ id: 1 }], now: now, **hashes) } }
        .to raise_error(Leasehold::Error::Internal, /lacks a column/)
    end
  end

  describe "threads" do
    let(:many) { Array.new(200_000) { |id| [id, "user-#{id}", old] } }

    def feed_many
      run([]) { |session| session.attributes(many, now: now, **arrays) }
    end

    it "run while many rows are compared" do
      many
      turns = 0
      worker = Thread.new { loop { turns += 1 and Thread.pass } }
      wait_for("the other thread") { turns.positive? }
      before = turns
      feed_many
      expect(turns - before).to be > 10
    ensure
      worker&.kill
    end

    it "can be killed or timed out while they feed rows" do
      many
      5.times { expect { Timeout.timeout(0.001) { feed_many } }.to raise_error(Timeout::Error) }
      fed = Queue.new
      thread = Thread.new { loop { feed_many and fed << true } }
      fed.pop
      thread.kill
      expect(thread.join(Support::Waiting::DEADLINE_SECONDS)).to eq(thread)
    end

    it "cannot use a session at the same time" do
      session = verification
      errors = Array.new(4) do
        Thread.new { 200.times.filter_map { session.bound("x") rescue $!.code } }
      end.flat_map(&:value)
      expect(errors.size).to eq(799)
      expect(errors.uniq - %w[OUT_OF_TURN SESSION_IN_USE]).to be_empty
    end
  end
end
