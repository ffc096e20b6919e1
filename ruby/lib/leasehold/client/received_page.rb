# frozen_string_literal: true

module Leasehold
  class Client
    # A page of records that is decoded on first access. Verification never accesses the records:
    # the engine decodes the bytes.
    class ReceivedPage < RecordPage
      # @return [String] the encoded ListRecordsResponse
      attr_reader :encoded

      def initialize(encoded, server_time, messages)
        super(server_time: server_time)
        @encoded = encoded
        @messages = messages
      end

      # @return [Array<Record>]
      def records
        decode unless super
        super
      end

      # @return [Boolean] true if more records follow in the range
      def truncated
        decode unless self[:records]
        super
      end
      alias_method :truncated?, :truncated

      # Returns the page's size without decoding it or showing records.
      def inspect
        "#<#{self.class} of #{@encoded.bytesize} bytes, server_time=#{server_time.inspect}>"
      end

      private

      def decode
        self.records, self.truncated = @messages.records(@encoded)
      end
    end
  end
end
