# frozen_string_literal: true

module Support
  # Runs verification sessions over usernames.
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

    # @return [Leasehold::Client::ReceivedPage] a page as the client receives it
    def received_page(records, truncated: false)
      v1 = Leasehold::Client::Messages::V1
      answer = v1::ListRecordsResponse.new(records: records.map { |record| encodable(v1, record) }, truncated: truncated)
      encoded = v1::ListRecordsResponse.encode(answer)
      Leasehold::Client::ReceivedPage.new(encoded, now, Leasehold::Client::Messages.new(1))
    end

    def verification(bucket_types: [4], **settings)
      Leasehold::Verification.new(source_type: 1, bucket_types: bucket_types, recent_within_seconds: 3600, **settings)
    end

    # @yieldparam session [Leasehold::Verification] the block feeds the rows of the first page to it
    # @return [Leasehold::Verification] a session that was fed its first page
    def run(records, bound: nil, **settings, &feed)
      session = verification(**settings)
      feeds[session] = feed
      session.bound(bound)
      session.records(Leasehold::RecordPage.new(records: records, truncated: false, server_time: now))
      yield session
      session
    end

    # Executes all steps to the end: every update succeeds, and rows that are read again are unchanged.
    def finish(run, updates = [])
      until (step = run.next).is_a?(Leasehold::Verification::Done)
        case step
        when Leasehold::Verification::PageDone then run.proceed
        when Leasehold::Verification::ReadAgain then feed_rows_again(run)
        when Leasehold::Verification::Begin
          updates << step
          run.updated(:begun)
        when Leasehold::Verification::Commit then run.updated(:settled)
        when Leasehold::Verification::Refused then raise "the run is refused: #{step}"
        end
      end
      # Forgets the block that feeds rows: the memory spec would count the block as a leak.
      feeds.delete(run)
      run
    end

    # @return [Struct] the session's first step that is not the end of a page
    def next_update(run)
      run.proceed while run.next.is_a?(Leasehold::Verification::PageDone)
      run.next
    end

    # @return [Array<Leasehold::Verification::Begin>] all updates of a session
    def updates_of(run)
      updates = []
      finish(run, updates)
      updates
    end

    private

    def feed_rows_again(run)
      feeds.fetch(run) { ->(session) { session.rows([], now: now) } }.call(run)
    end

    # @return [Hash] the block that feeds rows, by session
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
