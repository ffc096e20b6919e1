# frozen_string_literal: true

require "securerandom"

require_relative "claims"
require_relative "verification_runs"

module Support
  # Calls each function of the extension once.
  module EngineCalls
    include Claims
    include VerificationRuns

    # @return [Array] the results, equal in every round
    def call_everything
      form = Leasehold::Native.canonical_form(4, "Alice")
      key = Leasehold::Native.encode_source_id(7)
      Leasehold::Native.check_batch([username("alice")], [username("bob").to_h])
      deadlines = Leasehold::Native::Deadlines.new(15_000_000, 5_000_000)
      standings = [0, 15_000_000, 20_000_000].map { |silent| deadlines.standing(silent) }
      times = [deadlines.renewal_micros, deadlines.safe_micros, deadlines.held_micros]
      [form, key, standings, times, rejected_claims, verification_result, reconciliation_summary, service_answers, lock_answers]
    end

    private

    def rejected_claims
      Leasehold::Native.check_batch([username("a b")], [])
    rescue Leasehold::Error::Invalid => e
      e.rejected
    end

    def verification_result
      run = run([record(1, "alice"), record(2, "bob")]) do |session|
        session.attributes([{ "id" => 1, "name" => "alicia", "at" => old }], now: now, **hashes)
      end
      [finish(run).report, run.take_findings.map { |finding| finding[:outcome] }, run.checkpoint]
    end

    def service_answers
      service = Leasehold::Native::Service.new([1])
      begun = service.begin(1, [username("alice")], [], 42, "key", [7, 7], 5)
      answers = [service.leases(1, nil, nil, nil), service.settle(1, begun.first, true, 6), service.record(4, "ALICE")]
      [begun, answers, service.copy.records(1, 1, [4], "", ""), service.leases(1, 2, 3, nil)]
    end

    def lock_answers
      holder, waiter = %w[a b].map { |letter| letter * 16 }
      path = ["user.update", "7", 0]
      service = Leasehold::Native::LockService.new("test", 5)
      [holder, waiter].each { |session| service.open(session, 15_000_000, 5_000_000, 1) }
      asked = [[holder, 0], [waiter, 1]].map { |session, wait| service.acquire(session, session, path, [false, 0], wait, 2) }
      forced = [service.force(path, 6, false, 3), service.renew(holder, 3), service.elapse(path, 4)]
      released = service.release(waiter, path, 7, false, "done", 5)
      ended = [service.leave(waiter, waiter, 6), service.expire(holder, 6), service.close(waiter, 6)]
      [asked, forced, released, ended, reaped(service), shared(service), service.lock(path), service.copy(9).locks("user", 0, nil)]
    end

    # Lets a session hold two permits, and loses one of them.
    def shared(service)
      session = "e" * 16
      service.open(session, 15_000_000, 5_000_000, 13)
      held = %w[f g].map { |ask| service.acquire(session, ask * 16, ["user", "p", 0], [false, 2], 0, 13) }
      forced = service.force(["user", "p", 1], held[0][0], false, 14)
      [held, forced, service.lock(["user", "p", 1]), service.elapse(["user", "p", 1], 15), service.lock(["user", "p", 0])]
    end

    # Lets a holder die, and another session clean up.
    def reaped(service)
      holder, cleaner = %w[c d].map { |letter| letter * 16 }
      path = ["reaped", "7", 0]
      service.reap_namespace("reaped", 1)
      [holder, cleaner].each { |session| service.open(session, 15_000_000, 5_000_000, 7) }
      service.acquire(holder, holder, path, [false, 0], 0, 7)
      service.expire(holder, 8)
      held = service.reap(cleaner, cleaner, "reaped", 9)
      released = service.release(cleaner, path, held[2], true, "", 10)
      [held, released, service.reap(cleaner, holder, "reaped", 11), service.lock(path), service.resolve(path, held[7][0], true, 12)]
    end

    def reconciliation_summary
      run = Leasehold::Reconciliation.new(stale_after_seconds: 600)
      run.leases(Leasehold::LeasePage.new(leases: [], cursor: nil, server_time: now))
      run.rows([[SecureRandom.uuid, now - 700]], now: now)
      run.settled(:done)
      run.deleted
      run.summary
    end
  end
end
