# frozen_string_literal: true

require "json"
require "securerandom"

require "leasehold/native"

module Leasehold
  # The claims of one table compared with its rows, and corrected. It never calls out: take the step that {#next} says,
  # feed back what came of it, until it is {Done}. One thread at a time. Source ids are bytes; nil bounds nothing.
  class Verification
    # Find the source id of the row that is `rows` rows after `after`; feed {#bound}.
    FindBound = Struct.new(:after, :rows)
    # List a page of the server's records; feed {#records}.
    ListRecords = Struct.new(:after, :upto)
    # Read the rows of a range by source id; feed {#rows} or {#attributes}.
    ReadRows = Struct.new(:after, :upto)
    # Read these rows once more, from where nothing lags behind, those out of the model's scope without claims; feed {#rows} or
    # {#attributes}. A row that is being written counts as changed just now.
    ReadAgain = Struct.new(:ids)
    # Begin an update; feed {#updated}. `encoded` is what {Client#begin_encoded} sends; objects are made of the
    # claims for those who look at them.
    Begin = Struct.new(:encoded, :create_count, :destroy_count) do
      include Discreet

      # How much it claims and gives up, not what.
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
    # Commit what was begun; feed {#updated}.
    Commit = Class.new
    # Roll back what was begun; feed {#updated}.
    RollBack = Class.new
    # A page is compared: {#proceed}, or {#stop} and keep the {#checkpoint} of the end.
    PageDone = Class.new
    # The run is over.
    Done = Class.new

    STEPS = {
      find_bound: FindBound, list_records: ListRecords, read_rows: ReadRows, read_again: ReadAgain, begin: Begin,
      commit: Commit, roll_back: RollBack, page_done: PageDone, done: Done
    }.freeze
    private_constant :STEPS

    # @param source_type [Integer] the table
    # @param bucket_types [Array<Integer>] what its rows claim
    # @param recent_within_seconds [Numeric] what was changed since is left alone
    # @param hash_seed [Integer] keys the hashes of values in findings
    # @param checkpoint [String, nil] where to go on
    # @raise [Error::Invalid] the checkpoint is none
    def initialize(source_type:, bucket_types:, recent_within_seconds:, rows_per_page: 1000, dry_run: false,
                   hash_seed: SecureRandom.random_number(1 << 63), checkpoint: nil)
      settings = {
        source_type: source_type, bucket_types: bucket_types, rows_per_page: rows_per_page, dry_run: dry_run,
        recent_within_micros: (recent_within_seconds * 1_000_000).to_i, hash_seed: hash_seed
      }
      @session = Native::Verification.new(JSON.generate(settings), checkpoint)
    end

    # @return [Struct] what to do next; the same until it is fed
    def next
      name, *members = @session.step
      STEPS.fetch(name).new(*members)
    end

    # @param source_id [String, nil] nil where fewer rows are left
    def bound(source_id)
      @session.bound(source_id)
    end

    # @param page [RecordPage]
    def records(page)
      # What came off the wire is read by the engine; objects are made only for those who look at them.
      return @session.encoded_records(page.encoded, page.server_time) if page.respond_to?(:encoded)

      @session.records(page.records, page.truncated?, page.server_time)
    end

    # Rows with their claims, by source id.
    #
    # @param rows [Array<Array(String, Time, Array)>] `[source_id, updated_at, claims]`, a claim being
    #   `[bucket_type, value, subject_type, subject_id]`
    # @param now [Time] by the database's clock
    def rows(rows, now:)
      @session.rows(rows, now)
    end

    # Rows as `pluck` or `select_all` gives them, by encoded key. Columns are positions in Arrays, or keys of Hashes. A
    # value of nil is no claim, an Integer is claimed in decimal. A key of binary encoding is a source id already.
    #
    # @param rows [Array<Array>, Array<Hash>]
    # @param key [Integer, String, Symbol] the column of the primary key
    # @param updated_at [Integer, String, Symbol, nil] the column of when the row was changed
    # @param claims [Array<Array>] `[bucket_type, value_column, subject_type, subject_column]`
    # @param now [Time] by the database's clock
    def attributes(rows, key:, updated_at:, claims:, now:)
      @session.attributes(rows, key, updated_at, claims, now)
    end

    # @param outcome [:begun, :settled, :failed, Error] the error where the begin was refused because of claims
    def updated(outcome)
      case outcome
      when :begun then @session.begun
      when :settled then @session.settled
      when :failed then @session.failed
      else refused(outcome)
      end
    end

    # Goes on after a page.
    def proceed
      @session.proceed
    end

    # Ends the run here, after a page: what was found is corrected first, up to {Done}.
    def stop
      @session.stop
    end

    # Where another run can go on; nil where nothing is left to do. It holds values of claims: keep it as user data.
    #
    # @return [String, nil]
    def checkpoint
      @session.checkpoint
    end

    # @return [Hash{Symbol => Object}] counts of what was seen and done so far
    def report
      JSON.parse(@session.report, symbolize_names: true)
    end

    # @return [Array<Hash{Symbol => Object}>] what became of single claims since the last call, without their values
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
