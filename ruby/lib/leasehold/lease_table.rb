# frozen_string_literal: true

module Leasehold
  # The leases that a database's committed transactions were written under: `cells_outstanding_leases` of one connection.
  # Each database has its own, so this is not a model.
  class LeaseTable
    # The table, under the name that cells know.
    NAME = "cells_outstanding_leases"
    # The function and the trigger that refuse a COMMIT under a lease that may have been given up.
    GUARD = "cells_outstanding_leases_refuse_late_commit"

    class << self
      # The guard: a COMMIT later than this age of the lease is refused (R04). What the age lacks to `stale_after_seconds`
      # is time for the COMMIT itself.
      #
      # @param age_seconds [Integer] well below `stale_after_seconds` of whoever reconciles
      def guard_sql(age_seconds: Leasehold.configuration.commit_within_seconds)
        <<~SQL
          CREATE FUNCTION #{GUARD}() RETURNS trigger LANGUAGE plpgsql AS $$
          BEGIN
            IF clock_timestamp() - NEW.created_at > make_interval(secs => TG_ARGV[0]::double precision) THEN
              RAISE EXCEPTION 'lease % is older than % seconds: this transaction comes too late, run it again',
                NEW.uuid, TG_ARGV[0] USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN NULL;
          END
          $$;
          CREATE CONSTRAINT TRIGGER #{GUARD} AFTER INSERT ON #{NAME}
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION #{GUARD}(#{Integer(age_seconds)});
        SQL
      end

      # Takes back what the guard left behind of itself, once the table is gone.
      def unguard_sql
        "DROP FUNCTION #{GUARD}()"
      end
    end

    def initialize(connection)
      @connection = connection
    end

    # The database's clock, in its own spelling, which keeps its microseconds; and which session of the database says so. One
    # without the table refuses, so that no lease is begun that could not be written there.
    #
    # @raise [Error::Misconfigured] there is no such table
    # @return [Array(String, Integer)]
    def mark
      run("SELECT clock_timestamp()::text, pg_backend_pid(), '#{NAME}'::regclass") { |result| result.values.first.take(2) }
    rescue ActiveRecord::StatementInvalid => error
      raise unless error.cause.is_a?(PG::UndefinedTable)

      raise Error::Misconfigured, "the database has no `#{NAME}`: run the migration of `rails generate leasehold:install`"
    end

    # Adds a lease to the present transaction.
    #
    # @param begun_at [String] the database's clock, not later than the lease's begin
    def insert(uuid, begun_at)
      at = quote(begun_at)
      run("INSERT INTO #{NAME} (uuid, created_at, updated_at) VALUES (#{quote(uuid)}, #{at}, #{at}) " \
          "ON CONFLICT (uuid) DO NOTHING")
    end

    # Whether the lease is in the table, and which session of the database says so.
    #
    # @return [Array(Boolean, Integer)]
    def look(uuid)
      written = "EXISTS (SELECT 1 FROM #{NAME} WHERE uuid = #{quote(uuid)})"
      fresh { @connection.select_rows("SELECT #{written}, pg_backend_pid()", "Leasehold").first }
    end

    # Takes a lease that is settled out of the table.
    def delete(uuid)
      run("DELETE FROM #{NAME} WHERE uuid = #{quote(uuid)}")
    end

    # The rows of these leases.
    #
    # @return [Array<Array(String, Integer)>] uuids, and microseconds since 1970
    def find(uuids)
      uuids.empty? ? [] : rows("uuid IN (#{uuids.map { |uuid| quote(uuid) }.join(', ')})")
    end

    # The first rows that are so old, after a place in their order.
    #
    # @param after [Array(Integer, String), nil] microseconds since 1970, and a uuid
    # @return [Array<Array(String, Integer)>] as {#find}
    def list(after:, min_age_seconds:, limit:)
      old = "created_at <= clock_timestamp() - make_interval(secs => #{Float(min_age_seconds)})"
      later = "(created_at, uuid) > (#{time(after[0])}, #{quote(after[1])})" if after
      rows([old, later].compact.join(" AND "), "ORDER BY created_at, uuid LIMIT #{Integer(limit)}")
    end

    # The database's clock.
    #
    # @return [Integer] microseconds since 1970
    def clock_micros
      fresh { @connection.select_value("SELECT #{micros('clock_timestamp()')}", "Leasehold") }
    end

    # Whether the database refuses a COMMIT under a lease that is given up at this age.
    def guarded?(stale_after_seconds)
      # Arguments end with a zero byte each.
      seconds = "SELECT convert_from(substring(tgargs FROM 1 FOR length(tgargs) - 1), 'UTF8')::double precision FROM pg_trigger " \
                "WHERE tgname = #{quote(GUARD)} AND tgrelid = '#{NAME}'::regclass AND tgenabled <> 'D'"
      within = fresh { @connection.select_value(seconds, "Leasehold") }
      !within.nil? && within < stale_after_seconds
    end

    private

    # What every save pays for goes to the database past what ActiveRecord keeps for statements of its own.
    def run(sql)
      result = @connection.execute(sql, "Leasehold")
      yield result if block_given?
    ensure
      result&.clear
    end

    def rows(condition, order = nil)
      sql = "SELECT uuid, #{micros('created_at')} FROM #{NAME} WHERE #{condition} #{order}"
      fresh { @connection.select_rows(sql, "Leasehold") }
    end

    def micros(time)
      "(extract(epoch FROM #{time}) * 1000000)::bigint"
    end

    def time(micros)
      "'epoch'::timestamptz + #{Integer(micros)} * interval '1 microsecond'"
    end

    # A request's query cache would answer with what was.
    def fresh(&query)
      @connection.uncached(&query)
    end

    # Texts alone.
    def quote(value)
      "'#{@connection.quote_string(value)}'"
    end
  end
end
