# frozen_string_literal: true

require "json"
require "securerandom"

require "leasehold/native"

module Leasehold
  # A verification session: compares the claims of one table with its rows, and corrects the claims.
  # It performs no input or output. Execute the step that {#next} returns, feed its result, and
  # repeat until the step is {Done} or {Refused}. Use a session in one thread at a time. Source ids are bytes;
  # nil as a bound means unbounded. {Verifier} is the loop of a cell.
  class Verification
    # Find the source id of the row that is `rows` rows after `after`; feed {#bound}.
    FindBound = Struct.new(:after, :rows)
    # List a page of the server's records; feed {#records}.
    ListRecords = Struct.new(:after, :upto)
    # Read the rows of a range of source ids; feed {#rows} or {#attributes}.
    ReadRows = Struct.new(:after, :upto)
    # Read these rows again, from the primary database and not from a replica; feed {#rows} or {#attributes}.
    # Feed no claims for a row outside of the model's scope. If an open transaction is writing a row, feed the
    # current time as the row's last change.
    ReadAgain = Struct.new(:ids)
    # Begin an update, then pass the result to {#updated}. `encoded` is a BeginUpdateRequest without
    # `cell_id`, which {Client#begin_encoded} adds. {#creates} and {#destroys} decode `encoded`.
    Begin = Struct.new(:encoded, :create_count, :destroy_count) do
      include FilteredInspect

      # Returns the number of claims instead of the claims.
      def inspect
        "#<struct #{self.class} create_count=#{create_count}, destroy_count=#{destroy_count}>"
      end

      # @return [Array<Claim>]
      def creates
        Client::Messages.claims(encoded).first
      end

      # @return [Array<Claim>]
      def destroys
        Client::Messages.claims(encoded).last
      end
    end
    # Commit the begun update; feed {#updated}.
    Commit = Class.new
    # Roll back the begun update; feed {#updated}.
    RollBack = Class.new
    # A page has been compared. Call {#proceed}, or {#stop} and store the {#checkpoint}.
    PageDone = Class.new
    # The run is refused, because it would destroy `destroys` of the table's `claims` claims (V11). To let the run
    # go on, pass `needed_share` or more as `max_destroy_share`, with the {#checkpoint}.
    Refused = Struct.new(:destroys, :claims, :needed_share)
    # The run is finished.
    Done = Class.new

    STEPS = {
      find_bound: FindBound, list_records: ListRecords, read_rows: ReadRows, read_again: ReadAgain, begin: Begin,
      commit: Commit, roll_back: RollBack, page_done: PageDone, refused: Refused, done: Done
    }.freeze
    private_constant :STEPS

    # @param source_type [Integer] the table's source type
    # @param bucket_types [Array<Integer>] the bucket types that the table's rows claim
    # @param recent_within_seconds [Numeric] age up to which a changed row or claim is left alone
    # @param max_destroy_share [Numeric] largest share of the table's claims that the run may destroy, from 0 to 1;
    #   ten claims may be destroyed in any table
    # @param hash_seed [Integer] seed of the hashes that replace values in findings
    # @param checkpoint [String, nil] position at which to continue
    # @raise [Error::Invalid] if the checkpoint is malformed
    def initialize(source_type:, bucket_types:, recent_within_seconds:, rows_per_page: 1000, dry_run: false,
                   max_destroy_share: 0.1, hash_seed: SecureRandom.random_number(1 << 63), checkpoint: nil)
      settings = {
        source_type: source_type, bucket_types: bucket_types, rows_per_page: rows_per_page, dry_run: dry_run,
        recent_within_micros: (recent_within_seconds * 1_000_000).to_i, max_destroy_share: max_destroy_share.to_f,
        hash_seed: hash_seed
      }
      @session = Native::Verification.new(JSON.generate(settings), checkpoint)
    end

    # @return [Struct] the next step; the same one until its result is fed
    def next
      name, *members = @session.step
      STEPS.fetch(name).new(*members)
    end

    # @param source_id [String, nil] nil if fewer rows follow
    def bound(source_id)
      @session.bound(source_id)
    end

    # @param page [RecordPage]
    def records(page)
      # The engine decodes the encoded answer itself, so no Ruby object is made for a record.
      return @session.encoded_records(page.encoded, page.server_time) if page.respond_to?(:encoded)

      @session.records(page.records, page.truncated?, page.server_time)
    end

    # Feeds rows with their claims, in the order of source ids.
    #
    # @param rows [Array<Array(String, Time, Array)>] `[source_id, updated_at, claims]`; a claim is
    #   `[bucket_type, value, subject_type, subject_id]`
    # @param now [Time] the database's time before the page's records were listed, or before rows were read again
    def rows(rows, now:)
      @session.rows(rows, now)
    end

    # Feeds rows as `select_rows` or `select_all` return them, in the order of source ids. Columns
    # are positions in Arrays or keys of Hashes. A nil value is no claim; an Integer is claimed in
    # decimal. A key in binary encoding is a source id already.
    #
    # @param rows [Array<Array>, Array<Hash>]
    # @param key [Integer, String, Symbol] the column of the primary key
    # @param updated_at [Integer, String, Symbol, nil] the column of the row's last change
    # @param claims [Array<Array>] `[bucket_type, value_column, subject_type, subject_column]`
    # @param now [Time] the database's time before the page's records were listed, or before rows were read again
    def attributes(rows, key:, updated_at:, claims:, now:)
      @session.attributes(rows, key, updated_at, claims, now)
    end

    # @param outcome [:begun, :settled, :failed, Error] the error if the begin was refused for its
    #   claims
    def updated(outcome)
      case outcome
      when :begun then @session.begun
      when :settled then @session.settled
      when :failed then @session.failed
      else refused(outcome)
      end
    end

    # Continues after a page.
    def proceed
      @session.proceed
    end

    # Stops the run after a page. The session still corrects the differences it has found, until
    # {Done}.
    def stop
      @session.stop
    end

    # Returns the position at which another run can continue; nil if nothing is left to do. It
    # contains values of claims, so store it like user data.
    #
    # @return [String, nil]
    def checkpoint
      @session.checkpoint
    end

    # @return [Hash{Symbol => Object}] counts of the run so far
    def report
      JSON.parse(@session.report, symbolize_names: true)
    end

    # @return [Array<Hash{Symbol => Object}>] outcomes of single claims since the last call, with
    #   hashed values
    def take_findings
      JSON.parse(@session.take_findings, symbolize_names: true)
    end

    private

    def refused(error)
      return @session.failed if error.rejected.empty?

      @session.refused(error.rejected.map { |claim| [claim.list.to_s, claim.position, claim.code] })
    end
  end
end
