# frozen_string_literal: true

require "json"

require "leasehold/native"

module Leasehold
  # A reconciliation session: decides how to settle the leases that their processes left unsettled.
  # It performs no input or output. Execute the step that {#next} returns, feed its result, and
  # repeat until the step is {Done}. Use a session in one thread at a time. {Reconciler} is the loop
  # of a cell.
  #
  # @example The loop
  #   until (step = session.next).is_a?(Leasehold::Reconciliation::Done)
  #     case step
  #     when Leasehold::Reconciliation::ListLeases then session.leases(client.list_leases(cursor: step.cursor))
  #     when Leasehold::Reconciliation::FindRows then session.rows(rows_of(step.leases), now: database_time)
  #     # and so on for the other steps
  #     end
  #   end
  class Reconciliation
    # List a page of the cell's outstanding leases; feed {#leases}.
    ListLeases = Struct.new(:cursor)
    # Find the local rows of these leases; feed {#rows}.
    FindRows = Struct.new(:leases)
    # List at most `limit` local rows of at least this age, in the order of creation time and lease,
    # after `[created_at, uuid]`; feed {#rows}.
    ListRows = Struct.new(:after, :min_age_seconds, :limit)
    # Commit or roll back a lease (`:committed`, `:rolled_back`); feed {#settled}.
    Settle = Struct.new(:lease, :outcome)
    # Delete the local row of a lease that was `:committed`, `:lost` or `:forgotten`; feed
    # {#deleted}. A `:lost` lease was rolled back although its transaction is committed: report it
    # first.
    DeleteRow = Struct.new(:lease, :fate)
    # The run is finished.
    Done = Class.new

    OUTCOMES = { "Committed" => :committed, "RolledBack" => :rolled_back }.freeze
    private_constant :OUTCOMES

    # @param stale_after_seconds [Numeric] age from which a lease or a row is stale
    # @param rows_per_page [Integer]
    def initialize(stale_after_seconds:, rows_per_page: 1000)
      settings = { stale_after_micros: (stale_after_seconds * 1_000_000).to_i, rows_per_page: rows_per_page }
      @session = Native::Reconciliation.new(JSON.generate(settings))
    end

    # @return [Struct, Done] the next step; the same step, as a new object, until its result is fed
    def next
      step = JSON.parse(@session.step, symbolize_names: true)
      case step.fetch(:step)
      when "list_leases" then ListLeases.new(step[:cursor])
      when "find_rows" then FindRows.new(step[:leases])
      when "list_rows" then ListRows.new(position(step[:after]), step[:min_age_micros] / 1e6, step[:limit])
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

    # @param rows [Array<Array(String, Time)>] uuids of leases, and the creation times of their rows
    # @param now [Time] by the database's clock
    def rows(rows, now:)
      rows = rows.map { |uuid, created_at| { created_at: micros(created_at), lease: uuid } }
      feed(event: :rows, rows: rows, now: micros(now))
    end

    # @param answer [Symbol] `:done`, `:rolled_back`, `:committed` or `:not_found`
    def settled(answer)
      feed(event: :settled, answer: answer)
    end

    # Feeds that the row is deleted.
    def deleted
      feed(event: :deleted)
    end

    # Feeds that the step failed or its outcome is unknown. The next run repeats it.
    def failed
      feed(event: :failed)
    end

    # @return [Hash{Symbol => Object}] counts of the run so far
    def summary
      JSON.parse(@session.summary, symbolize_names: true)
    end

    private

    def feed(event)
      @session.feed(JSON.generate(event))
    end

    def position(row)
      row && [Time.at(0, row[:created_at], :microsecond).utc, row[:lease]]
    end

    def micros(time)
      time.to_i * 1_000_000 + time.usec
    end
  end
end
