# frozen_string_literal: true

require "leasehold/rails"
require "digest"
require_relative "bulk_update/batch"

module Leasehold
  # Begins and commits updates for rows that are committed already: one, or as many as the server's limits ask for. Claims
  # that are refused for good are told and left out, so that one of them stops no other; verification finds what is left to
  # correct.
  class BulkUpdate
    # @param key [String] the same for every try, so that a repeated one gets the leases of the first
    def initialize(connection:, key:, creates:, destroys:, client: Leasehold.client)
      @table = LeaseTable.new(connection)
      @key = key
      @batches = [Batch.new(creates, destroys)]
      @client = client
      @deadline_seconds = Leasehold.configuration.verification_deadline_seconds
    end

    # @raise [Error::Busy] some claims are under another lease; all others are done
    def run
      try(@batches.shift) while @batches.any?
      raise @busy if @busy
    end

    private

    def try(batch)
      apply(batch) unless batch.empty?
    rescue Error => error
      return @batches.unshift(*batch.halves) if too_large?(batch, error)
      raise if error.rejected.empty?

      @busy = error if error.is_a?(Error::Busy)
      error.rejected.each { |claim| Events.publish(:refused, **claim.to_h) }
      @batches.unshift(batch.without(error.rejected))
    end

    # How much fits is the server's to say, and a refusal costs nothing.
    def too_large?(batch, error)
      error.code == "LIMIT_EXCEEDED" && error.rejected.empty? && batch.many?
    end

    # The lease's row is there before its commit, so that what is lost between them is committed by reconciliation.
    def apply(batch)
      begun_at, = @table.mark
      lease = @client.begin_update(
        creates: batch.creates, destroys: batch.destroys, idempotency_key: key(batch), deadline_seconds: @deadline_seconds
      )
      @table.insert(lease.uuid, begun_at)
      commit(batch, lease.uuid)
      @table.delete(lease.uuid)
    end

    # Who died after a begin has had its lease rolled back meanwhile: then it is begun anew, under another key.
    def commit(batch, uuid)
      @client.commit_update(uuid, deadline_seconds: @deadline_seconds)
    rescue Error::RolledBack
      @key = [@key, uuid]
      @batches.unshift(batch)
    end

    def key(batch)
      Digest::SHA256.hexdigest(Marshal.dump([@key, batch.creates.map(&:to_a), batch.destroys.map(&:to_a)]))
    end
  end
end
