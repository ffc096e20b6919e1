# frozen_string_literal: true

module Leasehold
  # The table `cells_outstanding_leases` of one database. It has a row for each lease whose transaction is
  # committed in that database, until the lease is settled. This class is not a model, because each database of
  # the application has its own table.
  class LeaseTable
    # The table's name. Existing cells have the table under this name.
    NAME = "cells_outstanding_leases"
    # Name of the commit guard's function and trigger.
    GUARD = "cells_outstanding_leases_refuse_late_commit"

    class << self
      # Returns the SQL that creates the commit guard: a constraint trigger that refuses the COMMIT if the
      # lease is older than `age_seconds` (R04). The trigger is deferred, so PostgreSQL runs it at COMMIT and
      # not at the INSERT. The COMMIT itself may then take as long as `stale_after_seconds` minus
      # `age_seconds`.
      #
      # @param age_seconds [Integer] must be well below `stale_after_seconds` of the reconciling processes
      def guard_sql(age_seconds: Leasehold.configuration.commit_within_seconds)
        guard_function_sql + guard_trigger_sql(age_seconds)
      end

      # Returns the first part of {#guard_sql}.
      def guard_function_sql
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
        SQL
      end

      # Returns the second part of {#guard_sql}.
      def guard_trigger_sql(age_seconds = Leasehold.configuration.commit_within_seconds)
        <<~SQL
          CREATE CONSTRAINT TRIGGER #{GUARD} AFTER INSERT ON #{NAME}
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION #{GUARD}(#{Integer(age_seconds)});
        SQL
      end

      # Returns the SQL that removes the commit guard's function. DROP TABLE removes the trigger, but not the
      # function.
      def unguard_sql
        "DROP FUNCTION #{GUARD}()"
      end
    end

    def initialize(connection)
      @connection = connection
    end

    # Reads the database's clock and the session's process id. Fails without the table, so that no lease is
    # begun whose row could not be written.
    #
    # @raise [Error::Misconfigured] if the table does not exist (SQLSTATE 42P01)
    # @return [Array(String, Integer)] the time as the database prints it, with microseconds, and the
    #   backend's process id
    def clock_and_session
      execute("SELECT clock_timestamp()::text, pg_backend_pid(), '#{NAME}'::regclass") { |result| result.values.first.take(2) }
    rescue ActiveRecord::StatementInvalid => error
      raise unless error.cause.is_a?(PG::UndefinedTable)

      raise Error::Misconfigured, "the database has no table `#{NAME}`: run the migration of `rails generate leasehold:install`"
    end

    # Inserts the lease's row in the current transaction.
    #
    # @param begun_at [String] a time of the database's clock, not later than the begin of the lease
    def insert(uuid, begun_at)
      at = quote_text(begun_at)
      execute("INSERT INTO #{NAME} (uuid, created_at, updated_at) VALUES (#{quote_text(uuid)}, #{at}, #{at}) " \
              "ON CONFLICT (uuid) DO NOTHING")
    end

    # The state of a lease's row, as the connection's session sees it. A row that was written and seen in the
    # same open transaction is not committed yet.
    RowStatus = Struct.new(:written, :backend_pid, :in_transaction) do
      # Returns true if the row proves that its transaction is committed (R02).
      def committed?
        written && !in_transaction
      end
    end

    # @return [RowStatus, nil] nil if the session's transaction is aborted, so that only ROLLBACK can end it
    #   (SQLSTATE 25P02)
    def row_status(uuid)
      exists = "EXISTS (SELECT 1 FROM #{NAME} WHERE uuid = #{quote_text(uuid)})"
      sql = "SELECT #{exists}, pg_backend_pid(), txid_current_if_assigned() IS NOT NULL"
      RowStatus.new(*uncached { @connection.select_rows(sql, "Leasehold").first })
    rescue ActiveRecord::StatementInvalid => error
      raise unless error.cause.is_a?(PG::InFailedSqlTransaction)
    end

    # Deletes the row of a settled lease.
    def delete(uuid)
      execute("DELETE FROM #{NAME} WHERE uuid = #{quote_text(uuid)}")
    end

    # @return [Array<Array(String, Integer)>] the rows of these leases: uuid, and creation time in
    #   microseconds since 1970
    def find(uuids)
      uuids.empty? ? [] : select("uuid IN (#{uuids.map { |uuid| quote_text(uuid) }.join(', ')})")
    end

    # Lists the oldest rows that have at least this age, in the order of creation time and uuid.
    #
    # @param after [Array(Integer, String), nil] the last row of the page before: microseconds since 1970,
    #   and uuid
    # @return [Array<Array(String, Integer)>] rows as {#find} returns them
    def list(after:, min_age_seconds:, limit:)
      old = "created_at <= clock_timestamp() - make_interval(secs => #{Float(min_age_seconds)})"
      later = "(created_at, uuid) > (#{time_sql(after[0])}, #{quote_text(after[1])})" if after
      select([old, later].compact.join(" AND "), "ORDER BY created_at, uuid LIMIT #{Integer(limit)}")
    end

    # @return [Integer] the database's clock, in microseconds since 1970
    def clock_micros
      uncached { @connection.select_value("SELECT #{micros_sql('clock_timestamp()')}", "Leasehold") }
    end

    # Returns true if the commit guard exists and refuses a COMMIT whose lease has this age.
    def guarded?(stale_after_seconds)
      # `pg_trigger.tgargs` holds each argument followed by a zero byte (PostgreSQL 15 manual, pg_trigger).
      seconds = "SELECT convert_from(substring(tgargs FROM 1 FOR length(tgargs) - 1), 'UTF8')::double precision FROM pg_trigger " \
                "WHERE tgname = #{quote_text(GUARD)} AND tgrelid = '#{NAME}'::regclass AND tgenabled <> 'D'"
      within = uncached { @connection.select_value(seconds, "Leasehold") }
      !within.nil? && within < stale_after_seconds
    end

    private

    # Sends a statement without the statement cache and type map of `exec_query` (activerecord 6.1.7.10,
    # connection_adapters/postgresql/database_statements.rb:54): every save pays for these statements.
    # The result is freed at once, as `execute` requires (line 37 there).
    def execute(sql)
      result = @connection.execute(sql, "Leasehold")
      yield result if block_given?
    ensure
      result&.clear
    end

    def select(condition, order = nil)
      sql = "SELECT uuid, #{micros_sql('created_at')} FROM #{NAME} WHERE #{condition} #{order}"
      uncached { @connection.select_rows(sql, "Leasehold") }
    end

    def micros_sql(time)
      "(extract(epoch FROM #{time}) * 1000000)::bigint"
    end

    def time_sql(micros)
      "'epoch'::timestamptz + #{Integer(micros)} * interval '1 microsecond'"
    end

    # Runs the block without the query cache, which would return the answer of an earlier, equal query of
    # the same request (activerecord 6.1.7.10, connection_adapters/abstract/query_cache.rb:97).
    def uncached(&query)
      @connection.uncached(&query)
    end

    # Quotes a String. The general `quote` looks up the type of its argument first, which every save would
    # pay for.
    def quote_text(text)
      "'#{@connection.quote_string(text)}'"
    end
  end
end
