# frozen_string_literal: true

module Leasehold
  class Verifier
    # How far a model's verification has come, in the model's database, and the lock under which it goes on.
    class Progress
      # The table.
      NAME = "cells_claims_verifications"

      # @param dry_run [Boolean] begin at the beginning, and keep nothing
      def initialize(model, dry_run: false)
        @model = model.name
        @connection = model.connection
        @dry_run = dry_run
      end

      # Runs the block, unless another process runs one for the same model (V10). The lock goes with the connection.
      def exclusively
        return unless value("SELECT pg_try_advisory_lock(#{lock})")

        begin
          yield
        ensure
          unlock
        end
      end

      # @return [String, nil] where to go on
      def checkpoint
        value("SELECT checkpoint FROM #{NAME} WHERE model = #{quote(@model)}") unless @dry_run
      end

      # Keeps where to go on; nil is at the beginning.
      def store(checkpoint)
        return if @dry_run

        @connection.update(<<~SQL, "Leasehold")
          INSERT INTO #{NAME} (model, checkpoint, updated_at)
          VALUES (#{quote(@model)}, #{quote(checkpoint)}, clock_timestamp())
          ON CONFLICT (model) DO UPDATE SET checkpoint = excluded.checkpoint, updated_at = excluded.updated_at
        SQL
      end

      private

      def unlock
        value("SELECT pg_advisory_unlock(#{lock})")
      rescue ActiveRecord::ActiveRecordError, PG::Error
        # The lock has gone with the connection; why that has gone is told already.
        nil
      end

      def lock
        "hashtextextended(#{quote("leasehold verification of #{@model}")}, 0)"
      end

      def value(sql)
        @connection.uncached { @connection.select_value(sql, "Leasehold") }
      end

      def quote(value)
        @connection.quote(value)
      end
    end
  end
end
