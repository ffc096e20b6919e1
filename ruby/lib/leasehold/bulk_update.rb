# frozen_string_literal: true

require "leasehold/rails"
require "digest"

module Leasehold
  # Begins and commits an update for rows that are committed already. Claims that are refused for good are told and left
  # out, so that one of them stops no other; verification finds what is left to correct.
  class BulkUpdate
    # @param key [String] the same for every try, so that a repeated one gets the leases of the first
    def initialize(connection:, key:, creates:, destroys:, client: Leasehold.client)
      @table = LeaseTable.new(connection)
      @key = key
      @creates = creates
      @destroys = destroys
      @client = client
      @deadline_seconds = Leasehold.configuration.verification_deadline_seconds
    end

    # @raise [Error::Busy] some claims are under another lease; all others are done
    def run
      try until @creates.empty? && @destroys.empty?
      raise @busy if @busy
    end

    private

    def try
      apply
      @creates = @destroys = []
    rescue Error => error
      raise if error.rejected.empty?

      @busy = error if error.is_a?(Error::Busy)
      leave_out(error.rejected)
    end

    # The lease's row is there before its commit, so that what is lost between them is committed by reconciliation.
    def apply
      begun_at, = @table.mark
      lease = @client.begin_update(
        creates: @creates, destroys: @destroys, idempotency_key: body_key, deadline_seconds: @deadline_seconds
      )
      @table.insert(lease.uuid, begun_at)
      @client.commit_update(lease.uuid, deadline_seconds: @deadline_seconds)
      @table.delete(lease.uuid)
    end

    def body_key
      Digest::SHA256.hexdigest(Marshal.dump([@key, @creates.map(&:to_a), @destroys.map(&:to_a)]))
    end

    def leave_out(rejected)
      rejected.each { |claim| Events.publish(:refused, **claim.to_h) }
      @creates = without(@creates, rejected, :create)
      @destroys = without(@destroys, rejected, :destroy)
    end

    def without(claims, rejected, list)
      positions = rejected.select { |claim| claim.list == list }.map(&:position).to_set
      claims.reject.with_index { |_, position| positions.include?(position) }
    end
  end
end
