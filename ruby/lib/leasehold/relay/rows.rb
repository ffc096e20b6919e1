# frozen_string_literal: true

module Leasehold
  class Relay
    # Calls the SQL with which a relay reads an outbox. Each call is a transaction of its own, and keeps nothing in the
    # database's session: so it works through pgbouncer in transaction mode.
    class Rows
      # The most rows of one read, and the most bytes of their bodies.
      MAX_ROWS = 1_000
      MAX_BYTES = 4 * 1024 * 1024
      # The most done-marks of one call.
      MAX_MARKS = 100
      # Before all ids of requests.
      FIRST_ID = "00000000-0000-0000-0000-000000000000"
      # The size from which a partition of the outbox is emptied.
      ROTATED_BYTES = 8 * 1024 * 1024
      # A row that the server has refused for good, with the code of the reason.
      Refusal = Struct.new(:place, :number, :reason)
      # A request, or a completion of what a worker has taken. Without a queue it has nothing to hand on.
      Row = Struct.new(
        :place, :number, :operation, :queue, :key, :request_id, :kind, :priority, :delay, :max_attempts, :body, :session_id, :fence,
        :retry_after
      ) do
        # @return [Refusal] that of this row
        def refused(reason)
          Refusal.new(place, number, reason)
        end

        # Returns a text without the key and the body (Q22).
        def inspect
          "#<#{self.class} #{number}: #{operation} #{queue}>"
        end
      end
      # Rails 7.2 decodes a `bytea` here (7.2.2.2, connection_adapters/postgresql_adapter.rb:1190), so all versions read a text.
      READ = "SELECT place, number, operation, queue, key, request_id::text, kind, priority, extract(epoch FROM delay)::float8, " \
             "max_attempts, encode(body, 'base64'), session_id::text, fence, extract(epoch FROM retry)::float8 FROM leasehold_outbox_read(%d, %d, %d)"
      # A call that waits for a lock for ever would keep the relay from its stop, and another one from its place.
      LIMIT_TIME = "SET LOCAL statement_timeout = '60s'"
      private_constant :READ, :LIMIT_TIME, :FIRST_ID

      # @param model [Class] a class of the database
      def initialize(model)
        @model = model
      end

      # Makes a relay the one that works, or says that it still is (core/src/outbox.sql).
      #
      # @param relay [String] the id of the relay
      # @param seen [Integer, nil] the number of another relay that has been silent for long
      # @raise [Error::Misconfigured] if the database has no outbox
      # @return [Array(Boolean, Integer)] true if the relay is the one that works, and the number
      def hold(relay, seen)
        values("SELECT holds, beats FROM leasehold_outbox_hold('#{relay}', #{seen ? Integer(seen) : "NULL"})").first
      rescue ActiveRecord::StatementInvalid => error
        raise unless error.cause.is_a?(PG::UndefinedFunction)

        raise Error::Misconfigured, "the database of `#{@model.name}` has no outbox: run the migration of `rails generate leasehold:outbox`"
      end

      # Says that a relay stops.
      #
      # @return [void]
      def release(relay)
        values("SELECT FROM leasehold_outbox_release('#{relay}')")
      end

      # @return [Integer, nil] the batch that is under way, or a new one; nil if there is nothing to relay
      def begin
        values("SELECT batch FROM leasehold_outbox_begin()").first.first
      end

      # @return [Array<Row>] the next rows of the batch, in order
      def read(batch)
        values(format(READ, batch, MAX_ROWS, MAX_BYTES)).map { |row| Row.new(*row).tap { |read| read.body = read.body&.unpack1("m") } }
      end

      # Notes that the batch is relayed up to this row. Sets refused requests aside in the same transaction, so that none is lost
      # and none is kept twice; of a refused settle the done-marks.
      #
      # @param refusals [Array<Refusal>] those of rows up to this one
      # @return [Boolean] true if it was the last one of the batch
      def acknowledge(batch, row, refusals = [])
        acknowledgement = format("SELECT leasehold_outbox_acknowledge(%d, %d, %d)", batch, row&.place || 0, row&.number || 0)
        return values(acknowledgement).first.first if refusals.empty?

        values { |connection| "#{acknowledgement} FROM (#{refuse(connection, batch, refusals)}) AS refusals WHERE count >= 0" }.first.first
      end

      # Empties what is relayed.
      #
      # @return [void]
      def rotate
        values("SELECT leasehold_outbox_rotate(#{ROTATED_BYTES})")
      end

      # @param after [String, nil] an id; nil for the first ones
      # @return [Array<String>] ids of requests that have done-marks, in order
      def marks(after)
        sql = "SELECT id::text FROM leasehold_outbox_marks('#{after || FIRST_ID}', #{MAX_MARKS}) AS marks (id)"
        values(sql).flatten
      end

      # Forgets done-marks.
      #
      # @param ids [Array<String>]
      # @return [void]
      def forget(ids)
        values("SELECT FROM leasehold_outbox_forget('{#{ids.join(",")}}')") if ids.any?
      end

      private

      # `OFFSET 0` keeps PostgreSQL from leaving the calls out, or running them after the acknowledgement.
      def refuse(connection, batch, refusals)
        rows = refusals.map { |refusal| format("(%d, %d, %s)", refusal.place, refusal.number, connection.quote(refusal.reason.to_s)) }
        "SELECT count(leasehold_outbox_refuse(#{Integer(batch)}, place, number, reason)) " \
          "FROM (VALUES #{rows.join(", ")}) AS refused (place, number, reason) OFFSET 0"
      end

      # @yieldparam connection [ActiveRecord::ConnectionAdapters::AbstractAdapter]
      # @yieldreturn [String] the SQL, unless it is given
      def values(sql = nil)
        ActiveRecordCompat.with_connection(@model.connection_pool) do |connection|
          in_transaction(connection) { connection.uncached { connection.select_rows(sql || yield(connection), "Leasehold") } }
        end
      end

      # The database and the role may have other defaults. A transaction of the caller, such as that of a transactional test,
      # keeps its own settings.
      def in_transaction(connection)
        return yield if connection.transaction_open?

        connection.transaction(isolation: :read_committed) do
          connection.execute(LIMIT_TIME, "Leasehold")
          yield
        end
      end
    end
  end
end
