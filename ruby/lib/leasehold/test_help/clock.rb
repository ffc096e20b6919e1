# frozen_string_literal: true

module Leasehold
  module TestHelp
    # The clock of stub servers. It is `Time.now`, so `travel_to` moves it.
    module Clock
      # @return [Integer] microseconds since 1970
      def self.micros
        (Time.now.to_r * 1_000_000).to_i
      end
    end
  end
end
