# frozen_string_literal: true

module Leasehold
  class Client
    # One call of an rpc, repeated if no answer came.
    class Call
      # Shortest pause before the next try. A random factor from 1 to 2 lengthens the pause. Without a pause,
      # gRPC's core may give the next try the same connection that was just lost.
      RETRY_PAUSE_SECONDS = 0.01

      # @return [Integer] number of tries made
      attr_reader :attempts

      # @param store [ExpectedStore]
      def initialize(method, metadata:, tries:, deadline_seconds:, store:)
        @method = method
        @metadata = metadata.merge(store.metadata)
        @store = store
        @tries = tries
        @deadline_seconds = deadline_seconds
        @attempts = 0
      end

      # @raise [Error]
      # @return [Array(Object, Hash)] the response and its metadata
      def run(stub, request)
        ProcessEnd.check!
        @attempts += 1
        operation = stub.public_send(@method, request, metadata: @metadata, deadline: deadline, return_op: true)
        response = operation.execute
        @store.check(operation.metadata)
        [response, operation.metadata]
      rescue GRPC::DeadlineExceeded, GRPC::Unavailable => status
        error = error_of(status)
        raise error unless error.temporary? && @attempts < @tries

        sleep(RETRY_PAUSE_SECONDS * rand(1.0..2.0)) if status.is_a?(GRPC::Unavailable)
        retry
      rescue GRPC::BadStatus => status
        raise error_of(status)
      end

      private

      def error_of(status)
        @store.mismatch(status.metadata) || StatusTranslation.error(status)
      end

      def deadline
        GRPC::Core::TimeConsts.from_relative_time(@deadline_seconds)
      end
    end
  end
end
