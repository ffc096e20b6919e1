# frozen_string_literal: true

module Support
  # Runs of verification over usernames.
  module VerificationRuns
    def now
      @now ||= Time.now
    end

    def old
      now - 86_400
    end

    def arrays
      { key: 0, updated_at: 2, claims: [[4, 1, 4, 0]] }
    end

    def hashes
      { key: "id", updated_at: "at", claims: [[4, "name", 4, "id"]] }
    end

    def row(id, name, at: old)
      [[id].pack("Q>"), at, [[4, name, 4, id]]]
    end

    def record(id, name)
      Leasehold::Record.new(
        uuid: SecureRandom.uuid, claim: username(name, id: id), cell_id: 1, status: :ACTIVE, created_at: old, updated_at: old
      )
    end

    # A page as it comes off the wire.
    def received(records, truncated: false)
      v1 = Leasehold::Client::Messages::V1
      answer = v1::ListRecordsResponse.new(records: records.map { |record| encodable(v1, record) }, truncated: truncated)
      encoded = v1::ListRecordsResponse.encode(answer)
      Leasehold::Client::ReceivedPage.new(encoded, now, Leasehold::Client::Messages.new(1))
    end

    def verification(bucket_types: [4], **settings)
      Leasehold::Verification.new(source_type: 1, bucket_types: bucket_types, recent_within_seconds: 3600, **settings)
    end

    # A run that is fed its first page, the rows by the block.
    def run(records, bound: nil, **settings, &feed)
      session = verification(**settings)
      feeds[session] = feed
      session.bound(bound)
      session.records(Leasehold::RecordPage.new(records: records, truncated: false, server_time: now))
      yield session
      session
    end

    # Takes all steps to the end; every update is applied, and rows that are read again are as they were.
    def finish(run, updates = [])
      until (step = run.next).is_a?(Leasehold::Verification::Done)
        case step
        when Leasehold::Verification::PageDone then run.proceed
        when Leasehold::Verification::ReadAgain then again(run)
        when Leasehold::Verification::Begin
          updates << step
          run.updated(:begun)
        when Leasehold::Verification::Commit then run.updated(:settled)
        end
      end
      # Lest what is measured for leaks is kept here.
      feeds.delete(run)
      run
    end

    # The update that a run comes to, on this page or after it.
    def next_update(run)
      run.proceed while run.next.is_a?(Leasehold::Verification::PageDone)
      run.next
    end

    # All updates of a run.
    def updates_of(run)
      updates = []
      finish(run, updates)
      updates
    end

    private

    def again(run)
      feeds.fetch(run) { ->(session) { session.rows([], now: now) } }.call(run)
    end

    # What feeds a run its rows.
    def feeds
      @feeds ||= {}.compare_by_identity
    end

    def encodable(v1, record)
      claim = record.claim
      v1::Record.new(
        uuid: { value: record.uuid }, cell_id: record.cell_id, status: record.status,
        metadata: {
          bucket: { type: claim.bucket_type, value: claim.bucket_value },
          subject: { type: claim.subject_type, id: claim.subject_id },
          source: { type: claim.source_type, rails_primary_key_id: claim.source_id }
        },
        created_at: stamp(record.created_at), updated_at: stamp(record.updated_at)
      )
    end

    def stamp(time)
      { seconds: time.to_i, nanos: time.nsec }
    end
  end
end
