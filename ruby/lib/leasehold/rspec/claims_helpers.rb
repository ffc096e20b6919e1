# frozen_string_literal: true

module Leasehold
  # Help for an application's own specs.
  module RSpec
    # What the shared examples say about records. They look at the calls that the client makes; it may be a real server
    # that answers, or `stub_claims_server`.
    module ClaimsHelpers
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
    end
  end
end
