# frozen_string_literal: true

module Leasehold
  class Console
    # What verification finds of single claims: the first of each outcome, and how many more there are.
    class Findings
      # @param limit [Integer] how many of each outcome are told
      # @yieldparam line [String]
      def initialize(limit, &tell)
        @limit = limit
        @tell = tell
        @counts = Hash.new(0)
      end

      # @param payload [Hash{Symbol => Object}] of a `finding.leasehold`
      def add(payload)
        return if (@counts[payload.fetch(:outcome)] += 1) > @limit

        @tell.call(payload.except(:model).map { |name, value| "#{name}=#{value}" }.join(" "))
      end

      # Says what was not told.
      def tell_rest
        @counts.each do |outcome, count|
          @tell.call("and #{count - @limit} more with outcome=#{outcome}: `SAMPLES` says how many to show") if count > @limit
        end
      end
    end
  end
end
