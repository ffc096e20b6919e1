# frozen_string_literal: true

require "leasehold/rails"
require "digest"
require_relative "bulk_update/batch"

module Leasehold
  # Claims for rows that are already committed: begins and commits one update, or several if the
  # server's limits require it. If the server refuses some claims, their refusals are published and these
  # claims are left out, so that they do not stop the others. Verification creates or destroys them later.
  class BulkUpdate
    # @param key [String] equal for every attempt of a job, so that a retry gets the leases of the first
    #   attempt (B09)
    def initialize(connection:, key:, creates:, destroys:, client: Leasehold.client)
      @table = LeaseTable.new(connection)
      @key = key
      @batches = [Batch.new(creates, destroys)]
      @client = client
      @deadline_seconds = Leasehold.configuration.verification_deadline_seconds
    end

    # @raise [Error::Busy] if some claims are under another lease; all others are done
    # @raise [ActiveRecord::SerializationFailure] if the commit guard refused a lease that was too old (R04);
    #   that lease is rolled back
    def run
      attempt(@batches.shift) while @batches.any?
      raise @busy if @busy
    end

    private

    def attempt(batch)
      apply(batch) unless batch.empty?
    rescue Error::RolledBack
      begin_anew(batch)
    rescue Error => error
      return @batches.unshift(*batch.halves) if too_large?(batch, error)
      raise if error.rejected.empty?

      @busy = error if error.is_a?(Error::Busy)
      error.rejected.each { |claim| Events.publish(:refused, **claim.to_h) }
      @batches.unshift(batch.without(error.rejected))
    end

    # Returns true if the server refused the batch for its size. Only the server knows its limits,
    # and a refusal changes nothing.
    def too_large?(batch, error)
      error.code == "LIMIT_EXCEEDED" && error.rejected.empty? && batch.divisible?
    end

    # Begins and commits the batch. The lease's row is written before the commit. If the process dies in
    # between, reconciliation commits the lease.
    def apply(batch)
      begun_at, = @table.clock_and_session
      lease = @client.begin_update(
        creates: batch.creates, destroys: batch.destroys, idempotency_key: key(batch), deadline_seconds: @deadline_seconds
      )
      insert_row(lease.uuid, begun_at)
      commit(lease.uuid)
      @table.delete(lease.uuid)
    end

    # Writes the lease's row. If the commit guard refuses it, because the lease is too old (R04, SQLSTATE 40001),
    # the database has no row. The lease is then rolled back at once, so that its names are free for the next
    # attempt.
    #
    # @raise [ActiveRecord::SerializationFailure] if the row is refused
    def insert_row(uuid, begun_at)
      @table.insert(uuid, begun_at)
    rescue ActiveRecord::SerializationFailure
      @client.rollback_update(uuid, deadline_seconds: @deadline_seconds)
      raise
    end

    def commit(uuid)
      @client.commit_update(uuid, deadline_seconds: @deadline_seconds)
    rescue Error::RolledBack
      @table.delete(uuid)
      raise
    end

    # Queues the batch under a new key. A process that dies between begin and insert leaves a lease that
    # reconciliation rolls back, and the server refuses a begin that repeats the key of such a lease (B09).
    def begin_anew(batch)
      @key = [@key]
      @batches.unshift(batch)
    end

    def key(batch)
      Digest::SHA256.hexdigest(Marshal.dump([@key, batch.creates.map(&:to_a), batch.destroys.map(&:to_a)]))
    end
  end
end
