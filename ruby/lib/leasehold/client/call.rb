# frozen_string_literal: true

module Leasehold
  class Client
    # One rpc, tried again where no answer came.
    class Call
      # For as long, up to twice, a connection that is gone may still be given to the next try, which would be lost, too.
      PAUSE_SECONDS = 0.01

      # @return [Integer] tries that were made
      attr_reader :made

      def initialize(method, metadata:, tries:, deadline_seconds:)
        @method = method
        @metadata = metadata
        @tries = tries
        @deadline_seconds = deadline_seconds
        @made = 0
      end

      # @raise [Error]
      # @return [Array(Object, Hash)] the response and its metadata
      def run(stub, request)
        @made += 1
        operation = stub.public_send(@method, request, metadata: @metadata, deadline: deadline, return_op: true)
        [operation.execute, operation.metadata]
      rescue GRPC::DeadlineExceeded, GRPC::Unavailable => e
        error = Refusal.error(e)
        raise error unless error.temporary? && @made < @tries

        sleep(PAUSE_SECONDS * rand(1.0..2.0)) if e.is_a?(GRPC::Unavailable)
        retry
      rescue GRPC::BadStatus => e
        raise Refusal.error(e)
      end

      private

      def deadline
        GRPC::Core::TimeConsts.from_relative_time(@deadline_seconds)
      end
    end
  end
end
