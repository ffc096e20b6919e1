# frozen_string_literal: true

module Leasehold
  class Client
    # Records as they came off the wire. Objects are made of them when somebody looks; verification does not.
    class ReceivedPage < RecordPage
      # @return [String] the encoded answer
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

      # @return [Boolean]
      def truncated
        decode unless self[:records]
        super
      end
      alias_method :truncated?, :truncated

      # How long it is, not what it says; without looking at it.
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
