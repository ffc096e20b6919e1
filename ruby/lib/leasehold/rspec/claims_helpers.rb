# frozen_string_literal: true

module Leasehold
  # Helpers for an application's own specs.
  module RSpec
    # Helpers of the shared examples. They observe the client's calls, to a real server or to the
    # one of {TestHelp#stub_claims_server}.
    module ClaimsHelpers
      # Hint for a failed expectation.
      EXPECTED_HINT = "`claims_records` returns the expected claims: if associations are claimed too, override it with the " \
                      "sum of `claims_records_for(record)`"
      private_constant :EXPECTED_HINT

      # Builds the claims that the record should have. `only:` restricts them to some attributes: a
      # list of names, or a Hash with names as keys.
      #
      # @return [Array<Leasehold::Claim>]
      def claims_records_for(record, only: {})
        names = only.respond_to?(:keys) ? only.keys : Array(only)
        attributes = record.class.cells_claims_declarations
        attributes = attributes.slice(*names) if names.any?
        attributes.each_value.filter_map { |attribute| attribute.claim(record) if attribute.enabled? && attribute.claims?(record) }
      end

      # Builds the claims that the example's records should have. Override it if associations are
      # claimed too.
      def claims_records(only: {})
        claims_records_for(subject, only: only)
      end

      # Returns the updates that the block begins, as creates and destroys.
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

      # Returns the only update that the block begins.
      #
      # @param action [String] the block's action, for the failure message
      # @return [Array(Array<Leasehold::Claim>, Array<Leasehold::Claim>)] creates and destroys
      def single_update(action, &block)
        begun = begun_claims(&block)
        hint = begun.empty? ? "check the feature flags and `if:`" : "use one transaction"
        expect(begun.size).to eq(1), "expected #{action} to begin one update, but it began #{begun.size}: #{hint}"
        begun.first
      end

      # Expects exactly these claims; the failure message lists the differences.
      def expect_claims(claims, expected, verb)
        difference = { "not #{verb}" => expected - claims, "#{verb}, but not expected" => claims - expected }
        lines = difference.reject { |_, differing| differing.empty? }
                          .map { |label, differing| "#{label}: #{differing.map { |claim| describe_claim(claim) }.join(', ')}" }
        expect(claims).to match_array(expected), [*lines, EXPECTED_HINT].join("\n")
      end

      # Returns the changes of `transform_attributes`, which the including spec must define.
      def required_transform_attributes
        return transform_attributes if respond_to?(:transform_attributes)

        raise ArgumentError, "`transform_attributes` is missing: define the update's changes, for example " \
                             "`let(:transform_attributes) { { username: \"bob\" } }`"
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
