# frozen_string_literal: true

module Leasehold
  class Verifier
    # The stored checkpoint of a model's verification, and the lock that makes a run exclusive. Both are in
    # the model's own database.
    class Progress
      # The table of checkpoints.
      NAME = "cells_claims_verifications"

      # @param connection [ActiveRecord::ConnectionAdapters::AbstractAdapter] to the model's database
      # @param dry_run [Boolean] true to start at the beginning and store nothing
      def initialize(model, connection, dry_run: false)
        @model = model.name
        @connection = connection
        @dry_run = dry_run
      end

      # Runs the block, unless another process verifies the same model (V10). The advisory lock belongs to
      # the database session, so PostgreSQL releases it if the process dies.
      #
      # @return [Object, nil] the block's result; nil if another run holds the lock
      def exclusively
        locked, @session = row("SELECT pg_try_advisory_lock(#{lock_key}), pg_backend_pid()")
        return unless locked

        begin
          yield
        ensure
          unlock
        end
      end

      # Checks that the lock is still held. From Rails 7.1 on a lost connection is replaced by the next statement
      # (activerecord 7.2.2.2, connection_adapters/abstract_adapter.rb:975), and the lock is gone with the old
      # session.
      #
      # @raise [ActiveRecord::ConnectionNotEstablished] if this is another database session
      def check_session
        return if session == @session

        raise ActiveRecord::ConnectionNotEstablished,
              "the database session of the verification of `#{@model}` was lost, and its lock with it: run it again"
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

      def unlock
        value("SELECT pg_advisory_unlock(#{lock_key})") if session == @session
      rescue ActiveRecord::ActiveRecordError, PG::Error
        # The connection is lost, and the lock with it. The error that lost it is being raised already.
        nil
      end

      def lock_key
        "hashtextextended(#{quote("leasehold verification of #{@model}")}, 0)"
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
