# frozen_string_literal: true

module Leasehold
  class Locks
    # Converts single values for the messages of locks and of queues.
    module Conversion
      # Errors of google-protobuf and of numbers for a value that a message cannot hold.
      ENCODING_ERRORS = [ArgumentError, TypeError, RangeError, EncodingError].freeze
      private_constant :ENCODING_ERRORS

      # @return [Integer]
      def micros(seconds)
        (seconds * 1_000_000).ceil
      end

      # @return [String, nil]
      def uuid(bytes)
        bytes.unpack("H8H4H4H4H12").join("-") unless bytes.empty?
      end

      private

      # Returns the text of a part. Other objects are refused: the text of a record, for example, differs in each
      # process, so that no two of them would share a lock.
      def text(part)
        raise TypeError unless [String, Symbol, Integer].any? { |type| part.is_a?(type) }

        part.to_s
      end

      # Returns the name of an enumeration's member; its number if the contract does not name it.
      def symbol(member)
        member.is_a?(Symbol) ? member.to_s.downcase.to_sym : member
      end

      def time(timestamp)
        timestamp && Time.at(timestamp.seconds, timestamp.nanos, :nanosecond).utc
      end

      # The message of the original error is left out, because it may quote the value.
      def encode(argument)
        yield
      rescue *ENCODING_ERRORS => error
        raise Error::Invalid.new("`#{argument}` does not fit into a message (#{error.class})", code: "INVALID_UPDATE"), cause: nil
      end
    end
  end
end
