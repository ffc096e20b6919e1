# frozen_string_literal: true

require_relative "../verifier"

module Leasehold
  class Verifier
    # Verifies the claims of single rows, which a statement has changed past the callbacks or deleted. It compares and corrects as
    # a verification of the whole table does, with these differences:
    #
    # - It reads nothing else, and stores no checkpoint. It may run beside other verifications of the model: a claim that two of
    #   them correct is under the lease of one.
    # - A row counts as recent only if it is changed while the run reads it (V02). The caller verifies such a row again.
    # - It may destroy the claims of all of these rows (V11).
    class OfRows < Verifier
      # The shortest time of which a session can tell: only changes after the listing of records are as recent.
      RECENT_SECONDS = 1e-6
      # Counts of a report with claims that another verification may find settled, or can correct.
      UNSETTLED = %i[rows_recent records_recent records_held busy changed recent failed].freeze
      private_constant :RECENT_SECONDS

      # Reads only rows with these source ids.
      class Rows < RowReader
        # @param source_ids [Array<String>] sorted
        def initialize(model, source_ids)
          super(model)
          @source_ids = source_ids
        end

        # @return [String, nil] the source id that is `rows` ids after `after`; nil if fewer follow
        def bound(after, rows)
          following(after, nil)[rows - 1]
        end

        # @return [Array<String>] the source ids in a range
        def following(after, upto)
          @source_ids.select { |id| (after.nil? || id > after) && (upto.nil? || id <= upto) }
        end

        private

        def range(after, upto)
          super.where(@model.primary_key => following(after, upto).filter_map { |id| @key.decode(id) })
        end
      end

      # Stands in for the progress of a run over a table.
      class NoProgress
        # Runs the block.
        def exclusively
          yield
        end

        def checkpoint; end

        def check_session; end

        def store(_checkpoint); end
      end
      private_constant :NoProgress

      # @param model [Class] a model with claims
      # @param keys [Array<Integer, String>] primary keys, also of rows that do not exist
      def initialize(model, keys, client: Leasehold.client)
        @source_key = SourceKey.new(model)
        @source_ids = keys.filter_map { |key| source_id(key) }.uniq.sort
        super(model, client: client, resume: false, max_destroy_share: 1)
      end

      private

      # A key without a source id was never claimed.
      def source_id(key)
        @source_key.encode(key).b
      rescue Error::Invalid
        nil
      end

      def row_reader
        Rows.new(@model, @source_ids)
      end

      def progress_of(_connection)
        NoProgress.new
      end

      def recent_within_seconds
        RECENT_SECONDS
      end

      # These rows are known to be changed, so an empty table is no surprise.
      def check_emptied; end

      # Lists the records of these rows, span by span. Rows of near keys share a call, and records between them are left out.
      def list(step)
        wanted = @rows.following(step.after, step.upto)
        pages = @source_key.spans(wanted).flat_map { |after, upto| list_span(after, upto) }
        records = pages.flat_map(&:records).select { |record| wanted.bsearch { |id| id >= record.claim.source_id } == record.claim.source_id }
        RecordPage.new(records: records, truncated: false, server_time: pages.map(&:server_time).min || Time.now)
      end

      def list_span(after, upto)
        pages = []
        loop do
          pages << list_page(after, upto)
          return pages unless pages.last.truncated?

          after = pages.last.records.last.claim.source_id
        end
      end

      def list_page(after, upto)
        @client.list_records(
          source_type: @model.cells_claims_source_type, bucket_types: @rows.bucket_types, after: after, upto: upto,
          deadline_seconds: @configuration.verification_deadline_seconds
        )
      end
    end
  end
end
