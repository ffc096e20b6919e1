# frozen_string_literal: true

require "json"
require "pg"
require "leasehold/verifier/of_rows"

module Leasehold
  class Relay
    # Verifies the claims of the rows whose changes were captured: claims of new values are created, and those of former ones
    # destroyed, within seconds of the COMMIT (Q06).
    class CapturedClaims
      # The queue of captured changes. It is none of the server's.
      QUEUE = "leasehold.claims"
      # The queue of changes that were checked before their COMMIT.
      STRICT_QUEUE = "leasehold.claims.strict"
      # The pauses between verifications of a row whose claim is under the lease of a save, or that was changed meanwhile.
      PAUSES = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6].freeze
      # The most rows of one verification.
      MAX_KEYS = 1_000
      # The types of a primary key in JSON. It is null if it is too large.
      KEY_TYPES = [Numeric, String, NilClass].freeze
      # Errors of the database after which a later try may succeed.
      PASSING = [
        ActiveRecord::ConnectionNotEstablished, ActiveRecord::QueryAborted, ActiveRecord::TransactionRollbackError
      ].freeze
      PASSING_CAUSES = [PG::ConnectionBad, PG::UnableToSend, PG::OperatorIntervention].freeze
      private_constant :PAUSES, :MAX_KEYS, :KEY_TYPES, :PASSING, :PASSING_CAUSES

      # Returns true if the row of the outbox has changes of claimed columns.
      def self.row?(row)
        [QUEUE, STRICT_QUEUE].include?(row.queue)
      end

      # @param model [Class] a class of the outbox's database
      # @yieldparam seconds [Numeric] a time to wait
      def initialize(model, &pause)
        @pool = model.connection_pool
        @pause = pause
      end

      # Verifies the claims of all changed rows, and yields before each call. If it is repeated, it finds them right.
      #
      # @param rows [Array<Rows::Row>]
      # @raise [Error, ActiveRecord::ActiveRecordError] if the server or the database does not answer
      # @return [void]
      def run(rows, &beat)
        changes = rows.select { |row| row.queue == QUEUE }.filter_map { |row| change(row) }
        changes.group_by { |change| change.fetch("table") }.each do |table, of_table|
          verify_table(table, of_table, &beat)
        end
      end

      private

      # Any role that may submit can write into the queue. A malformed row must not stop the relay, and no error may quote it (Q22).
      #
      # @return [Hash, nil] nil if the row is malformed
      def change(row)
        change = parse(row.body.to_s)
        return change if change?(change)

        publish(:unverified_rows, nil, "MALFORMED")
        nil
      end

      def parse(body)
        text = body.dup.force_encoding(Encoding::UTF_8)
        JSON.parse(text) if text.valid_encoding?
      rescue JSON::ParserError
        nil
      end

      def change?(value)
        return false unless value.is_a?(Hash)

        rows = value["rows"]
        value.values_at("table", "operation").all?(String) && rows.is_a?(Array) && rows.all? { |row| changed_row?(row) }
      end

      def changed_row?(value)
        value.is_a?(Array) && value.first.is_a?(Array) && KEY_TYPES.any? { |type| value.first.first.is_a?(type) }
      end

      def verify_table(table, changes)
        publish(:unverified_rows, table, "TRUNCATE") if changes.any? { |change| change.fetch("operation") == "TRUNCATE" }
        keys = changes.flat_map { |change| change.fetch("rows").map { |row| row.first.first } }.uniq
        publish(:unverified_rows, table, "LARGE_KEY") if keys.include?(nil)
        found = models(table)
        publish(:unverified_rows, table, "NO_MODEL") if found.empty?
        found.product(keys.compact.each_slice(MAX_KEYS).to_a) do |model, slice|
          yield
          verify(model, slice)
        end
      end

      # A model that cannot be verified must not keep the others waiting.
      def verify(model, keys)
        [*PAUSES, nil].each do |pause|
          report = Verifier::OfRows.new(model, keys).run
          return if report[:disabled] || Verifier::OfRows::UNSETTLED.none? { |count| report[count].to_i.positive? }

          pause ? @pause.call(pause) : publish(:unverified_rows, model.table_name, "UNSETTLED")
        end
      rescue StandardError => error
        raise if passing?(error)

        # Only messages of the gem have no values (V09).
        message = error.is_a?(Error) ? error.message : "the relay leaves the changed rows to the next verification"
        Events.publish(:unverifiable, model: model.name, error: error.class.name, message: message)
      end

      # Returns true if the fault is the server's, the database's or the caller's, not the model's.
      def passing?(error)
        return !error.is_a?(Error::Misconfigured) && !error.is_a?(Error::Invalid) if error.is_a?(Error)

        PASSING.any? { |type| error.is_a?(type) } || PASSING_CAUSES.any? { |type| error.cause.is_a?(type) }
      end

      # @return [Array<Class>] the models whose rows are in the table, without those that others cover (STI)
      def models(table)
        names = Models.names.select do |name|
          model = Models.fetch(name)
          model.connection_pool == @pool && (table == model.table_name || table.end_with?(".#{model.table_name}"))
        end
        Models.without_covered(names).map { |name| Models.fetch(name) }
      end

      def publish(event, table, reason)
        Events.publish(event, table: table, reason: reason)
      end
    end
  end
end
