# frozen_string_literal: true

module Leasehold
  class BulkUpdate
    # The claims of one update.
    class Batch
      attr_reader :creates, :destroys

      def initialize(creates, destroys)
        @creates = creates
        @destroys = destroys
      end

      def empty?
        creates.empty? && destroys.empty?
      end

      # Whether it can be made smaller.
      def many?
        creates.size + destroys.size > 1
      end

      # Two smaller ones. What is given up goes first, since what is claimed may be the same.
      #
      # @return [Array<Batch>]
      def halves
        return [Batch.new([], destroys), Batch.new(creates, [])] if creates.any? && destroys.any?

        first, second = [creates, destroys].map { |claims| claims.in_groups(2, false) }.transpose
        [Batch.new(*first), Batch.new(*second)]
      end

      # @param rejected [Array<RejectedClaim>]
      # @return [Batch]
      def without(rejected)
        Batch.new(rest(creates, rejected, :create), rest(destroys, rejected, :destroy))
      end

      private

      def rest(claims, rejected, list)
        positions = rejected.select { |claim| claim.list == list }.map(&:position).to_set
        claims.reject.with_index { |_, position| positions.include?(position) }
      end
    end
  end
end
