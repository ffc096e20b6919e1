# frozen_string_literal: true

module Leasehold
  # The tables of leases of all databases of this cell, as one: a lease's row may be in any of them. Ages are by each
  # database's own clock, told as times of the first one's.
  class LeaseTables
    # Those of the databases that claimable models are in, or of those that the configuration names.
    def self.of_cell(configuration = Leasehold.configuration)
      bases = configuration.lease_databases || Models.names.map { |name| Models.fetch(name) }
      new(bases.map(&:connection_pool).uniq.map { |pool| LeaseTable.new(pool.connection) })
    end

    # @param tables [Array<LeaseTable>]
    def initialize(tables)
      @tables = tables
    end

    # @return [Array(Array<Array(String, Time)>, Time)] the rows of these leases, and the time
    def find(uuids)
      gather { |table, _shift| table.find(uuids) }
    end

    # @return [Array(Array<Array(String, Time)>, Time)] as {#find}
    def list(after:, min_age_seconds:, limit:)
      rows, now = gather do |table, shift|
        place = [micros(after[0]) - shift, after[1]] if after
        table.list(after: place, min_age_seconds: min_age_seconds, limit: limit)
      end
      [rows.sort_by { |uuid, created_at| [created_at, uuid] }.first(limit), now]
    end

    # Takes a lease that is settled out of whichever table it is in.
    def delete(uuid)
      @tables.each { |table| table.delete(uuid) }
    end

    # Whether every database refuses a COMMIT under a lease that is given up at this age (R04).
    def guarded?(stale_after_seconds)
      @tables.all? { |table| table.guarded?(stale_after_seconds) }
    end

    private

    def gather
      now = @tables.first.clock_micros
      rows = @tables.each_with_index.flat_map do |table, position|
        shift = position.zero? ? 0 : now - table.clock_micros
        yield(table, shift).map { |uuid, created_at| [uuid, time(created_at + shift)] }
      end
      [rows, time(now)]
    end

    def time(micros)
      Time.at(0, micros, :microsecond).utc
    end

    def micros(time)
      time.to_i * 1_000_000 + time.usec
    end
  end
end
