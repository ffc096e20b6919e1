# frozen_string_literal: true

module Leasehold
  class Locks
    # The calls of sessions, locks and queues, over a connection of this process.
    class Calls
      # The longest deadline of a stream, a day, which is also the longest wait that a server allows. gRPC's core has no
      # deadline after 2038 (grpc 1.51.1, src/ruby/ext/grpc/rb_grpc.c:89).
      MAX_STREAM_SECONDS = 86_400
      SESSIONS = Contract::Leasehold::Sessions::V1::SessionService
      LOCKS = Contract::Leasehold::Locks::V1::LockService
      QUEUES = Contract::Leasehold::Queues::V1::QueueService
      private_constant :SESSIONS, :LOCKS, :QUEUES

      # @param configuration [Configuration]
      # @param credentials [Client::Credentials]
      def initialize(configuration, credentials)
        @configuration = configuration
        @store = Client::ExpectedStore.new(configuration.store_id)
        @credentials = credentials
        @connection, *@stubs = connect
      end

      # Returns true if this process opened the connection.
      def current?
        @connection.current?
      end

      # Sends a message, again if no answer came.
      #
      # @param seconds [Numeric] deadline of one try
      # @raise [Error]
      # @return [Object] the response
      def run(method, request, tries: @configuration.tries, seconds: @configuration.lock_deadline_seconds)
        Client::Instrumentation.measure(method) do |payload|
          call = Client::Call.new(method, metadata: {}, tries: tries, deadline_seconds: seconds, store: @store)
          call.run(stub(method), request).first
        rescue Error::Unavailable => error
          raise @credentials.diagnose(error, @configuration.address, seconds)
        ensure
          payload[:tries] = call.attempts
        end
      end

      # Opens a stream, and yields its messages until the block returns a true value or the stream ends. Cancels the
      # stream in any case, also if the thread is interrupted.
      #
      # @param seconds [Numeric] deadline of the stream
      # @param heard [Proc, nil] called at the end of a stream that the server had accepted
      # @raise [Error]
      # @return [Object, nil] the block's true value
      def stream(method, request, seconds, heard: nil)
        ProcessEnd.check!
        deadline = GRPC::Core::TimeConsts.from_relative_time(seconds)
        operation = stub(method).public_send(method, request, metadata: @store.metadata, deadline: deadline, return_op: true)
        Client::Instrumentation.measure(method) do |payload|
          payload[:tries] = 1
          each_message(operation) { |message| yield message }
        end
      ensure
        # The server sends its metadata when it has accepted the call.
        heard&.call if operation&.metadata&.any?
        operation&.cancel
      end

      # Closes the connection.
      #
      # @return [void]
      def close
        @connection.close
      end

      private

      # Returns a connection of this process, and the stubs of its services.
      def connect
        connection = Client::Connection.new(@configuration, @credentials)
        stubs = [SESSIONS::Stub, LOCKS::Stub, QUEUES::Stub].map do |type|
          type.new(@configuration.address, nil, channel_override: connection.channel)
        end
        [connection, *stubs]
      end

      def each_message(operation)
        operation.execute.each do |message|
          @store.check(operation.metadata)
          result = yield(message)
          return result if result
        end
        nil
      rescue GRPC::BadStatus => status
        raise @store.mismatch(status.metadata) || Client::StatusTranslation.error(status)
      end

      def stub(method)
        @stubs.find { |stub| stub.respond_to?(method) }
      end
    end
  end
end
