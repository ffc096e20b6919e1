# frozen_string_literal: true

module Leasehold
  # Help for an application's own specs.
  module RSpec
    # What the shared examples say about records. They look at the calls that the client makes; it may be a real server
    # that answers, or `stub_claims_server`.
    module ClaimsHelpers
      # Where expected claims come from.
      EXPECTED = "`claims_records` says what is expected: override it where associations are claimed, too, by adding up " \
                 "`claims_records_for(record)`"
      private_constant :EXPECTED

      # In the place of a server, one that refuses nothing and remembers nothing.
      class YesClient
        def begin_update(**)
          Leasehold::Lease.new(uuid: SecureRandom.uuid, fence: 1)
        end

        def commit_update(_uuid, **); end

        def rollback_update(_uuid, **); end
      end

      # Answers every update without a server.
      def stub_claims_server
        allow(Leasehold).to receive(:client).and_return(YesClient.new)
      end

      # The claims that belong to a record as it is, of some attributes only: `only: { username: ... }` or a list.
      #
      # @return [Array<Leasehold::Claim>]
      def claims_records_for(record, only: {})
        names = only.respond_to?(:keys) ? only.keys : Array(only)
        attributes = record.class.cells_claims_attributes
        attributes = attributes.slice(*names) if names.any?
        attributes.each_value.filter_map { |one| one.claim(record) if one.enabled? && one.claims?(record) }
      end

      # The claims of all records of the example. Override it where associations are claimed too.
      def claims_records(only: {})
        claims_records_for(subject, only: only)
      end

      # The updates that the block begins: creates and destroys of each.
      #
      # @return [Array<Array(Array<Leasehold::Claim>, Array<Leasehold::Claim>)>]
      def begun_claims
        begun = []
        allow(Leasehold.client).to receive(:begin_update).and_wrap_original do |original, creates: [], destroys: [], **rest|
          begun << [creates, destroys]
          original.call(creates: creates, destroys: destroys, **rest)
        end
        yield
        begun
      end

      # The only update that the block begins.
      #
      # @param doing [String] what the block does, for the message where there is none, or more
      # @return [Array(Array<Leasehold::Claim>, Array<Leasehold::Claim>)] creates and destroys
      def one_update(doing, &block)
        begun = begun_claims(&block)
        why = begun.empty? ? "is a feature flag off, or `if:` not true?" : "do it in one transaction"
        expect(begun.size).to eq(1), "expected #{doing} to begin one update, but it began #{begun.size}: #{why}"
        begun.first
      end

      # Holds claims to be those that are expected, and names the others.
      def expect_claims(claims, expected, verb)
        difference = { "not #{verb}" => expected - claims, "#{verb}, but not expected" => claims - expected }
        lines = difference.reject { |_, some| some.empty? }
                          .map { |what, some| "#{what}: #{some.map { |claim| describe_claim(claim) }.join(', ')}" }
        expect(claims).to match_array(expected), [*lines, EXPECTED].join("\n")
      end

      # What a record's update is to change.
      def told_transform_attributes
        return transform_attributes if respond_to?(:transform_attributes)

        raise ArgumentError, "say what the update changes: `let(:transform_attributes) { { username: \"bob\" } }`, for example"
      end

      private

      def describe_claim(claim)
        types = Cells::Claimable
        bucket = types::CLAIMS_BUCKET_TYPE.lookup(claim.bucket_type) || claim.bucket_type
        subject = types::CLAIMS_SUBJECT_TYPE.lookup(claim.subject_type) || claim.subject_type
        "#{bucket} #{claim.bucket_value.inspect} for #{subject} #{claim.subject_id.inspect}"
      end
    end
  end
end
