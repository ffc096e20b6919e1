# frozen_string_literal: true

require "json"

require "leasehold/native"

module Leasehold
  # What a cell does about leases that were never settled. It never calls out: take the step that {#next} says, feed
  # back what came of it, until it is {Done}. One thread at a time.
  class Reconciliation
    # List a page of the cell's outstanding leases, and feed {#leases}.
    ListLeases = Struct.new(:cursor)
    # Find the local rows of these leases, and feed {#rows}.
    FindRows = Struct.new(:leases)
    # List at most `limit` local rows that are at least this old, by age and lease, after `[created_at, uuid]`; feed
    # {#rows}.
    ListRows = Struct.new(:after, :min_age_seconds, :limit)
    # Commit or roll back a lease (`:committed`, `:rolled_back`), and feed {#settled}.
    Settle = Struct.new(:lease, :outcome)
    # Delete the local row, whose lease is `:committed`, `:lost` (say so to people first) or `:forgotten`; feed
    # {#deleted}.
    DeleteRow = Struct.new(:lease, :fate)
    # The run is over.
    Done = Class.new

    OUTCOMES = { "Committed" => :committed, "RolledBack" => :rolled_back }.freeze
    private_constant :OUTCOMES

    # @param stale_after_seconds [Numeric] the age from which a lease or a row is given up
    # @param rows_per_page [Integer]
    def initialize(stale_after_seconds:, rows_per_page: 1000)
      settings = { stale_after_micros: (stale_after_seconds * 1_000_000).to_i, rows_per_page: rows_per_page }
      @session = Native::Reconciliation.new(JSON.generate(settings))
    end

    # @return [Struct] what to do next; the same until it is fed
    def next
      step = JSON.parse(@session.step, symbolize_names: true)
      case step.fetch(:step)
      when "list_leases" then ListLeases.new(step[:cursor])
      when "find_rows" then FindRows.new(step[:leases])
      when "list_rows" then ListRows.new(place(step[:after]), step[:min_age_micros] / 1e6, step[:limit])
      when "settle" then Settle.new(step[:lease], OUTCOMES.fetch(step[:outcome]))
      when "delete_row" then DeleteRow.new(step[:lease], step[:fate].to_sym)
      when "done" then Done.new
      end
    end

    # @param page [LeasePage]
    def leases(page)
      leases = page.leases.map { |lease| { created_at: micros(lease.created_at), lease: lease.uuid } }
      feed(event: :leases, leases: leases, now: micros(page.server_time), cursor: page.cursor)
    end

    # @param rows [Array<Array(String, Time)>] uuids of leases, and when the rows were written
    # @param now [Time] by the database's clock
    def rows(rows, now:)
      rows = rows.map { |uuid, created_at| { created_at: micros(created_at), lease: uuid } }
      feed(event: :rows, rows: rows, now: micros(now))
    end

    # @param answer [Symbol] `:done`, `:rolled_back`, `:committed` or `:not_found`
    def settled(answer)
      feed(event: :settled, answer: answer)
    end

    # The row is gone.
    def deleted
      feed(event: :deleted)
    end

    # The step failed, or nobody knows what came of it: that is left for the next run.
    def failed
      feed(event: :failed)
    end

    # @return [Hash{Symbol => Object}] what the run has done so far
    def summary
      JSON.parse(@session.summary, symbolize_names: true)
    end

    private

    def feed(event)
      @session.feed(JSON.generate(event))
    end

    def place(row)
      row && [Time.at(0, row[:created_at], :microsecond).utc, row[:lease]]
    end

    def micros(time)
      time.to_i * 1_000_000 + time.usec
    end
  end
end
