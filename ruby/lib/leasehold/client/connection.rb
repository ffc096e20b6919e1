# frozen_string_literal: true

module Leasehold
  class Client
    # The client's state in one process: its channel, and its circuit breaker.
    class Connection
      # The generated stub, with two methods that bypass message objects: records are returned and
      # updates are sent as encoded bytes. Both are large, and Ruby allocates an object for each
      # nested message.
      class Stub < Contract::Gitlab::Cells::TopologyService::Claims::V1::ClaimService::Stub
        SERVICE = Contract::Gitlab::Cells::TopologyService::Claims::V1::ClaimService::Service
        LIST_RECORDS = "/#{SERVICE.service_name}/ListRecords"
        BEGIN_UPDATE = "/#{SERVICE.service_name}/BeginUpdate"
        private_constant :SERVICE, :LIST_RECORDS, :BEGIN_UPDATE

        def list_records(request, **options)
          request_response(LIST_RECORDS, request, SERVICE.rpc_descs[:ListRecords].marshal_proc, :itself.to_proc, **options)
        end

        def begin_encoded(request, **options)
          unmarshal = SERVICE.rpc_descs[:BeginUpdate].unmarshal_proc(:output)
          request_response(BEGIN_UPDATE, request, :itself.to_proc, unmarshal, **options)
        end
      end

      # Arguments of the channel. Keepalive detects a connection whose peer is gone silently. The
      # short backoffs reconnect soon after a server restarts.
      CHANNEL_ARGUMENTS = {
        "grpc.keepalive_time_ms" => 30_000,
        "grpc.keepalive_timeout_ms" => 10_000,
        "grpc.keepalive_permit_without_calls" => 1,
        "grpc.http2.max_pings_without_data" => 0,
        "grpc.initial_reconnect_backoff_ms" => 100,
        "grpc.min_reconnect_backoff_ms" => 1_000,
        "grpc.max_reconnect_backoff_ms" => 3_000,
        "grpc.max_receive_message_length" => 64 * 1024 * 1024,
        # A proxy from the environment must not stand between a cell and its claims server.
        "grpc.enable_http_proxy" => 0
      }.freeze

      # The connections of the parent that this process would otherwise free.
      INHERITED = []
      private_constant :INHERITED

      attr_reader :breaker, :channel, :stub

      def initialize(configuration, credentials)
        @pid = Process.pid
        @breaker = CircuitBreaker.new(
          limit: configuration.max_concurrent_begins,
          failures: configuration.circuit_failures,
          open_seconds: configuration.circuit_open_seconds
        )
        @stub = connect(configuration.address, credentials)
      end

      # Returns true if this process opened the connection.
      def current?
        @pid == Process.pid
      end

      # Closes the connection. In a process that was forked from its own, it is kept instead: gRPC crashes or hangs there
      # if Ruby frees it.
      #
      # @return [void]
      def close
        current? ? @channel.close : INHERITED << self
      end

      private

      def connect(address, credentials)
        @channel = open(address, credentials)
        Stub.new(address, nil, channel_override: @channel)
      end

      def open(address, credentials)
        GRPC::Core::Channel.new(address, CHANNEL_ARGUMENTS, credentials.channel_credentials)
      rescue RuntimeError => error
        # The message is "grpc cannot be used before and after forking" (grpc 1.51.1, in grpc_c.so).
        raise unless error.message.include?("fork")

        raise Error::Forked.new(
          "this process was forked from one that had made a call: make the first call after the fork", code: "FORKED"
        )
      end
    end
  end
end
