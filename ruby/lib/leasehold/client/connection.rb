# frozen_string_literal: true

module Leasehold
  class Client
    # What belongs to one process: its channel, and the breaker that counts its begins.
    class Connection
      # The contract's stub, but for records, which stay as they came off the wire, and updates that are ready for it: they
      # are many, and objects dear.
      class Stub < Gitlab::Cells::TopologyService::Claims::V1::ClaimService::Stub
        SERVICE = Gitlab::Cells::TopologyService::Claims::V1::ClaimService::Service
        LIST_RECORDS = "/#{SERVICE.service_name}/ListRecords"
        BEGIN_UPDATE = "/#{SERVICE.service_name}/BeginUpdate"
        private_constant :SERVICE, :LIST_RECORDS, :BEGIN_UPDATE

        def list_records(request, **options)
          request_response(LIST_RECORDS, request, SERVICE.rpc_descs[:ListRecords].marshal_proc, :itself.to_proc, **options)
        end

        def begin_encoded(request, **options)
          answer = SERVICE.rpc_descs[:BeginUpdate].unmarshal_proc(:output)
          request_response(BEGIN_UPDATE, request, :itself.to_proc, answer, **options)
        end
      end

      # Silent connections die in the middle; servers that were away are to be found again soon.
      CHANNEL = {
        "grpc.keepalive_time_ms" => 30_000,
        "grpc.keepalive_timeout_ms" => 10_000,
        "grpc.keepalive_permit_without_calls" => 1,
        "grpc.http2.max_pings_without_data" => 0,
        "grpc.initial_reconnect_backoff_ms" => 100,
        "grpc.min_reconnect_backoff_ms" => 1_000,
        "grpc.max_reconnect_backoff_ms" => 3_000,
        "grpc.max_receive_message_length" => 64 * 1024 * 1024,
        # No proxy that the environment names stands between a cell and its claims.
        "grpc.enable_http_proxy" => 0
      }.freeze

      attr_reader :breaker, :stub

      def initialize(configuration, credentials)
        @pid = Process.pid
        @breaker = CircuitBreaker.new(
          limit: configuration.max_concurrent_begins,
          failures: configuration.circuit_failures,
          open_seconds: configuration.circuit_open_seconds
        )
        @channel = open(configuration.address, credentials)
        @stub = Stub.new(configuration.address, nil, channel_override: @channel)
      end

      # Whether this process made it.
      def current?
        @pid == Process.pid
      end

      def close
        @channel.close
      end

      private

      def open(address, credentials)
        GRPC::Core::Channel.new(address, CHANNEL, credentials.for_channel)
      rescue RuntimeError => e
        raise unless e.message.include?("fork")

        raise Error::Forked.new(
          "this process was forked from one that had called already: make the first call after the fork", code: "FORKED"
        )
      end
    end
  end
end
