# frozen_string_literal: true

module Leasehold
  # The lease tables of all databases of this cell, as if they were one table: a lease's row may be in any of
  # them. Creation times are converted to the clock of the first database, so that all ages are by one clock
  # (R03).
  class LeaseTables
    # @return [LeaseTables] the tables of the databases that `lease_databases` names, or else of those that
    #   claimable models are in
    def self.of_cell(configuration = Leasehold.configuration)
      classes = configuration.lease_databases || Models.names.map { |name| Models.fetch(name) }
      new(classes.map(&:connection_pool).uniq)
    end

    # @param pools [Array<ActiveRecord::ConnectionAdapters::ConnectionPool>] one for each database
    def initialize(pools)
      @pools = pools
    end

    # @return [Array(Array<Array(String, Time)>, Time)] the rows of these leases, and the current time
    def find(uuids)
      collect { |table, _offset| table.find(uuids) }
    end

    # @param after [Array(Time, String), nil] creation time and uuid of the last row of the page before
    # @return [Array(Array<Array(String, Time)>, Time)] rows and time as {#find} returns them
    def list(after:, min_age_seconds:, limit:)
      rows, now = collect do |table, offset|
        position = [to_micros(after[0]) - offset, after[1]] if after
        table.list(after: position, min_age_seconds: min_age_seconds, limit: limit)
      end
      [rows.sort_by { |uuid, created_at| [created_at, uuid] }.first(limit), now]
    end

    # Deletes the row of a settled lease from the table that has it.
    def delete(uuid)
      @pools.each { |pool| with_table(pool) { |table| table.delete(uuid) } }
    end

    # Returns true if the commit guard of every database refuses a COMMIT whose lease has this age (R04).
    def guarded?(stale_after_seconds)
      @pools.all? { |pool| with_table(pool) { |table| table.guarded?(stale_after_seconds) } }
    end

    private

    def collect
      now = with_table(@pools.first, &:clock_micros)
      rows = @pools.each_with_index.flat_map do |pool, position|
        with_table(pool) do |table|
          offset = position.zero? ? 0 : now - table.clock_micros
          yield(table, offset).map { |uuid, created_at| [uuid, to_time(created_at + offset)] }
        end
      end
      [rows, to_time(now)]
    end

    # Runs the block with the lease table of the pool's database. The connection returns to the pool after the
    # block, so the reconciler keeps none while it calls the server.
    def with_table(pool)
      ActiveRecordCompat.with_connection(pool) { |connection| yield LeaseTable.new(connection) }
    end

    def to_time(micros)
      Time.at(0, micros, :microsecond).utc
    end

    def to_micros(time)
      time.to_i * 1_000_000 + time.usec
    end
  end
end
