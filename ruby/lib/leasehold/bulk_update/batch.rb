# frozen_string_literal: true

module Leasehold
  class BulkUpdate
    # The creates and destroys of one update.
    class Batch
      attr_reader :creates, :destroys

      def initialize(creates, destroys)
        @creates = creates
        @destroys = destroys
      end

      def empty?
        creates.empty? && destroys.empty?
      end

      # Returns true if the batch can be divided.
      def divisible?
        creates.size + destroys.size > 1
      end

      # Divides the batch in two. Destroys come first, because a create may need a bucket that a
      # destroy frees.
      #
      # @return [Array<Batch>]
      def halves
        return [Batch.new([], destroys), Batch.new(creates, [])] if creates.any? && destroys.any?

        first, second = [creates, destroys].map { |claims| claims.in_groups(2, false) }.transpose
        [Batch.new(*first), Batch.new(*second)]
      end

      # @param rejected [Array<RejectedClaim>]
      # @return [Batch] the batch without the rejected claims
      def without(rejected)
        Batch.new(without_positions(creates, rejected, :create), without_positions(destroys, rejected, :destroy))
      end

      private

      def without_positions(claims, rejected, list)
        positions = rejected.select { |claim| claim.list == list }.map(&:position).to_set
        claims.reject.with_index { |_, position| positions.include?(position) }
      end
    end
  end
end
