# frozen_string_literal: true

module Leasehold
  class Console
    # Prints findings of verification: the first ones of each outcome, and the number of the others.
    class Findings
      # @param limit [Integer] number of findings printed of each outcome
      # @yieldparam line [String]
      def initialize(limit, &print)
        @limit = limit
        @print = print
        @counts = Hash.new(0)
      end

      # @param payload [Hash{Symbol => Object}] of a `finding.leasehold` event
      def add(payload)
        return if (@counts[payload.fetch(:outcome)] += 1) > @limit

        @print.call(payload.except(:model).map { |name, value| "#{name}=#{value}" }.join(" "))
      end

      # Prints the number of omitted findings of each outcome.
      def print_omitted
        @counts.each do |outcome, count|
          @print.call("and #{count - @limit} more with outcome=#{outcome}: set `SAMPLES` to show more") if count > @limit
        end
      end
    end
  end
end
