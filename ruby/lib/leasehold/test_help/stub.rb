# frozen_string_literal: true

require "leasehold/client"

module Leasehold
  module TestHelp
    # Takes the place of the generated stub of gRPC: the same methods, messages and metadata. The engine
    # answers in this process. The engine's refusals are raised as classes of {Error}, without a gRPC status.
    class Stub
      V1 = Leasehold::Client::Messages::V1
      UUID = Leasehold::Client::Messages::UUID
      # The result of a call with `return_op: true`.
      Operation = Struct.new(:execute, :metadata)
      private_constant :V1, :UUID, :Operation

      # @param server [StubServer]
      def initialize(server)
        @server = server
      end

      def begin_update(request, **options)
        begin_encoded(V1::BeginUpdateRequest.encode(request), **options)
      end

      # @param encoded [String] a BeginUpdateRequest
      def begin_encoded(encoded, metadata:, **)
        request = V1::BeginUpdateRequest.decode(encoded)
        creates, destroys = Leasehold::Client::Messages.claims(encoded)
        key = metadata[Leasehold::Client::IDEMPOTENCY_KEY]
        lease, fence = @server.begin(request.cell_id, creates, destroys, request.organization_id, key)
        response = V1::BeginUpdateResponse.new(cell_id: request.cell_id, lease_uuid: UUID.new(value: lease))
        Operation.new(response, { Leasehold::Client::FENCE => fence.to_s })
      end

      def commit_update(request, **)
        settle(request, true)
        Operation.new(V1::CommitUpdateResponse.new, {})
      end

      def rollback_update(request, **)
        settle(request, false)
        Operation.new(V1::RollbackUpdateResponse.new, {})
      end

      def list_leases(request, **)
        answer do |service|
          after = request.created_after
          after &&= after.seconds * 1_000_000 + after.nanos / 1000
          limit = request.limit if request.has_limit?
          leases, cursor = service.leases(request.cell_id, limit, after, request.next&.value)
          V1::ListLeasesResponse.new(leases: leases.map { |lease| lease_record(*lease) }, next: cursor && Contract::Google::Protobuf::Any.new(value: cursor))
        end
      end

      # @return [Operation] with an encoded ListRecordsResponse
      def list_records(request, **)
        answer do |service|
          types = request.bucket_types.map { |type| number(V1::Bucket::Type, type) }
          source_type = number(V1::Source::Type, request.source_type)
          records, truncated = service.records(request.cell_id, source_type, types, request.source_id_gt, request.source_id_lte)
          V1::ListRecordsResponse.encode(V1::ListRecordsResponse.new(records: records.map { |record| record(*record) }, truncated: truncated))
        end
      end

      def get_record(request, **)
        answer do |service|
          bucket = request.bucket
          V1::GetRecordResponse.new(record: record(*service.record(number(V1::Bucket::Type, bucket.type), bucket.value)))
        end
      end

      private

      def settle(request, commit)
        @server.call { |service, now| service.settle(request.cell_id, request.lease_uuid.value, commit, now) }
      end

      # @yieldparam service [Native::Service]
      # @yieldreturn the response
      # @return [Operation] with the server's time and version
      def answer
        @server.call do |service, now|
          headers = { Leasehold::Client::SERVER_TIME => now.to_s, Leasehold::Client::SERVER_VERSION => Native::VERSION }
          Operation.new(yield(service), headers)
        end
      end

      def record(uuid, claim, cell, status, lease, created_at, updated_at)
        bucket_type, value, subject_type, subject_id, source_type, source_id = claim
        V1::Record.new(
          uuid: UUID.new(value: uuid),
          metadata: {
            bucket: { type: bucket_type, value: value }, subject: { type: subject_type, id: subject_id },
            source: { type: source_type, rails_primary_key_id: source_id }
          },
          cell_id: cell, status: status.to_sym, lease_uuid: lease && UUID.new(value: lease),
          created_at: time(created_at), updated_at: time(updated_at)
        )
      end

      def lease_record(uuid, created_at, updated_at)
        V1::LeaseRecord.new(uuid: UUID.new(value: uuid), created_at: time(created_at), updated_at: time(updated_at))
      end

      def time(micros)
        seconds, rest = micros.divmod(1_000_000)
        Contract::Google::Protobuf::Timestamp.new(seconds: seconds, nanos: rest * 1000)
      end

      # Returns the number of an enumeration's member. google-protobuf returns the number itself for a member that
      # the contract does not name.
      def number(enum, value)
        value.is_a?(Integer) ? value : enum.resolve(value)
      end
    end
  end
end
