# frozen_string_literal: true

module Leasehold
  class Verifier
    # The stored checkpoint of a model's verification, and the locks that make a run exclusive. All are in the
    # model's own database.
    class Progress
      # The table of checkpoints.
      NAME = "cells_claims_verifications"

      # @param connection [ActiveRecord::ConnectionAdapters::AbstractAdapter] to the model's database
      # @param dry_run [Boolean] true to start at the beginning and store nothing
      def initialize(model, connection, dry_run: false)
        @model = model.name
        @table = model.table_name
        @connection = connection
        @dry_run = dry_run
      end

      # Runs the block, unless another process verifies the same model (V10) or has locked the model's whole
      # table. Verifications of several classes of a table (STI) may run at once: each corrects only the claims
      # of its own rows.
      #
      # @param whole_table [Boolean] true to run the block only if no other process verifies a class of the table
      # @return [Object, nil] the block's result; nil if another run holds a lock
      def exclusively(whole_table: false, &block)
        with_lock("table #{@table}", whole_table ? "" : "_shared") { with_lock(@model, &block) }
      end

      # Checks that the locks are still held. From Rails 7.1 on a lost connection is replaced by the next statement
      # (activerecord 7.2.2.2, connection_adapters/abstract_adapter.rb:975), and the locks are gone with the
      # old session.
      #
      # @raise [ActiveRecord::ConnectionNotEstablished] if this is another database session
      def check_session
        return if session == @session

        raise ActiveRecord::ConnectionNotEstablished,
              "the database session of the verification of `#{@model}` was lost, and its locks with it: run it again"
      end

      # @return [String, nil] the stored checkpoint; nil to start at the beginning
      def checkpoint
        value("SELECT checkpoint FROM #{NAME} WHERE model = #{quote(@model)}") unless @dry_run
      end

      # Stores a checkpoint; nil stands for the beginning. It contains values of claims, so it is a parameter of
      # type binary: a literal would be in the logs of statements, and ActiveRecord logs only the size of a binary
      # value (V09; activerecord 6.1.7.10, log_subscriber.rb:70).
      def store(checkpoint)
        return if @dry_run

        @connection.update(<<~SQL, "Leasehold", [parameter(checkpoint)])
          INSERT INTO #{NAME} (model, checkpoint, updated_at)
          VALUES (#{quote(@model)}, convert_from($1, 'UTF8'), clock_timestamp())
          ON CONFLICT (model) DO UPDATE SET checkpoint = excluded.checkpoint, updated_at = excluded.updated_at
        SQL
      end

      private

      # Runs the block with an advisory lock. The lock belongs to the database session, so PostgreSQL releases it
      # if the process dies.
      #
      # @param mode [String] `_shared` for a lock that several sessions hold at once
      # @return [Object, nil] the block's result; nil if another session holds the lock
      def with_lock(name, mode = "")
        key = "hashtextextended(#{quote("leasehold verification of #{name}")}, 0)"
        locked, session = row("SELECT pg_try_advisory_lock#{mode}(#{key}), pg_backend_pid()")
        return unless locked

        # Keeps the session of the first lock: a later session does not hold that lock.
        @session ||= session
        begin
          yield
        ensure
          unlock(key, mode)
        end
      end

      def unlock(key, mode)
        value("SELECT pg_advisory_unlock#{mode}(#{key})") if session == @session
      rescue ActiveRecord::ActiveRecordError, PG::Error
        # The connection is lost, and its locks with it. The error that lost it is being raised already.
        nil
      end

      # @return [Integer] the process id of the database session
      def session
        value("SELECT pg_backend_pid()")
      end

      def value(sql)
        row(sql)&.first
      end

      def row(sql)
        @connection.uncached { @connection.select_rows(sql, "Leasehold").first }
      end

      def parameter(value)
        ActiveRecord::Relation::QueryAttribute.new("checkpoint", value, ActiveModel::Type::Binary.new)
      end

      def quote(value)
        @connection.quote(value)
      end
    end
  end
end
