# frozen_string_literal: true

require "securerandom"

require_relative "claims"
require_relative "verification_runs"

module Support
  # Every way into the extension, once.
  module EngineCalls
    include Claims
    include VerificationRuns

    # What all of it comes to, the same at each call.
    def everything
      form = Leasehold::Native.canonical_form(4, "Alice")
      key = Leasehold::Native.encode_source_id(7)
      Leasehold::Native.check_batch([username("alice")], [username("bob").to_h])
      [form, key, refused, verified, reconciled]
    end

    private

    def refused
      Leasehold::Native.check_batch([username("a b")], [])
    rescue Leasehold::Error::Invalid => e
      e.rejected
    end

    def verified
      run = run([record(1, "alice"), record(2, "bob")]) do |session|
        session.attributes([{ "id" => 1, "name" => "alicia", "at" => old }], now: now, **hashes)
      end
      [finish(run).report, run.take_findings.map { |finding| finding[:outcome] }, run.checkpoint]
    end

    def reconciled
      run = Leasehold::Reconciliation.new(stale_after_seconds: 600)
      run.leases(Leasehold::LeasePage.new(leases: [], cursor: nil, server_time: now))
      run.rows([[SecureRandom.uuid, now - 700]], now: now)
      run.settled(:done)
      run.deleted
      run.summary
    end
  end
end
