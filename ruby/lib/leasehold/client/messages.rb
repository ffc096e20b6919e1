# frozen_string_literal: true

module Leasehold
  class Client
    # Converts between the gem's values and the messages of the wire contract.
    class Messages
      V1 = Contract::Gitlab::Cells::TopologyService::Claims::V1
      UUID = Contract::Gitlab::Cells::TopologyService::Types::V1::UUID
      # Errors of google-protobuf for a value that a message cannot hold.
      ENCODING_ERRORS = [ArgumentError, TypeError, RangeError, EncodingError].freeze
      private_constant :ENCODING_ERRORS

      # @param encoded [String] a BeginUpdateRequest
      # @return [Array(Array<Claim>, Array<Claim>)] creates and destroys
      def self.claims(encoded)
        new(nil).claims(encoded)
      end

      def initialize(cell_id)
        @cell_id = cell_id
      end

      def begin_update(creates, destroys, organization_id = nil)
        V1::BeginUpdateRequest.new(
          cell_id: @cell_id,
          organization_id: organization_id || 0,
          create_records: creates.map { |claim| metadata(claim) },
          destroy_records: destroys.map { |claim| metadata(claim) }
        )
      rescue *ENCODING_ERRORS => error
        check_encodable(:create, creates)
        check_encodable(:destroy, destroys)
        raise error
      end

      # Adds the cell to an encoded request. Concatenated encodings of one message type are merged
      # by the decoder (Protocol Buffers Encoding, "Last One Wins").
      #
      # @param claims [String] a BeginUpdateRequest without its cell
      # @return [String]
      def begin_encoded(claims)
        V1::BeginUpdateRequest.encode(V1::BeginUpdateRequest.new(cell_id: @cell_id)) + claims
      end

      # @see .claims
      def claims(encoded)
        request = V1::BeginUpdateRequest.decode(encoded)
        [request.create_records, request.destroy_records].map { |list| list.map { |metadata| claim(metadata) } }
      end

      def commit_update(uuid)
        V1::CommitUpdateRequest.new(cell_id: @cell_id, lease_uuid: UUID.new(value: uuid))
      end

      def rollback_update(uuid)
        V1::RollbackUpdateRequest.new(cell_id: @cell_id, lease_uuid: UUID.new(value: uuid))
      end

      def list_leases(created_after, cursor, limit)
        created_after &&= Contract::Google::Protobuf::Timestamp.new(seconds: created_after.to_i, nanos: created_after.nsec)
        cursor &&= Contract::Google::Protobuf::Any.decode(cursor.unpack1("m0"))
        V1::ListLeasesRequest.new(cell_id: @cell_id, created_after: created_after, next: cursor, limit: limit)
      end

      # @raise [Error::Invalid] if the list of types is empty: on the wire, an empty list stands for all types
      def list_records(source_type, bucket_types, after, upto)
        if bucket_types.to_a.empty?
          raise Error::Invalid.new("`bucket_types` is empty, which the server takes for all types: name each", code: "INVALID_UPDATE")
        end

        V1::ListRecordsRequest.new(
          cell_id: @cell_id,
          source_type: source_type,
          bucket_types: bucket_types,
          source_id_gt: after.to_s.b,
          source_id_lte: upto.to_s.b
        )
      end

      def get_record(bucket_type, value)
        V1::GetRecordRequest.new(bucket: V1::Bucket.new(type: bucket_type, value: value))
      end

      def lease_page(response, server_time, server_version)
        leases = response.leases.map do |lease|
          OutstandingLease.new(
            uuid: lease.uuid.value, created_at: time(lease.created_at), updated_at: time(lease.updated_at)
          )
        end
        # Base64, so that a caller can store the cursor as text.
        cursor = response.next && [Contract::Google::Protobuf::Any.encode(response.next)].pack("m0")
        LeasePage.new(leases: leases, cursor: cursor, server_time: server_time, server_version: server_version)
      end

      # @param encoded [String] a ListRecordsResponse
      # @return [Array(Array<Record>, Boolean)] the records, and true if more follow
      def records(encoded)
        response = V1::ListRecordsResponse.decode(encoded)
        [response.records.map { |record| record(record) }, response.truncated]
      end

      def record(record)
        Record.new(
          uuid: record.uuid.value,
          claim: claim(record.metadata),
          cell_id: record.cell_id,
          status: record.status,
          lease_uuid: record.lease_uuid&.value,
          created_at: time(record.created_at),
          updated_at: time(record.updated_at)
        )
      end

      private

      # Returns nested Hashes, not messages: google-protobuf allocates and keeps a Ruby object for
      # each nested message.
      def metadata(claim)
        subject_id, source_id = claim[:subject_id], claim[:source_id]
        {
          bucket: { type: claim[:bucket_type], value: claim[:bucket_value] },
          subject: subject_id && { type: claim[:subject_type], id: subject_id },
          source: source_id && { type: claim[:source_type], rails_primary_key_id: source_id.b }
        }
      end

      def check_encodable(list, claims)
        claims.each_with_index do |claim, position|
          V1::Metadata.new(metadata(claim))
        rescue *ENCODING_ERRORS => error
          raise_invalid(list, position, claim, error)
        end
      end

      # Names the claim that does not fit into a message. The message of the original error is left
      # out, because it may quote the value (V09).
      def raise_invalid(list, position, claim, error)
        bucket_type = claim[:bucket_type]
        rejected = RejectedClaim.new(list: list, position: position, bucket_type: bucket_type, code: "INVALID_UPDATE")
        message = "`#{list}_records[#{position}]`: a member has the wrong type (#{error.class}): " \
                  "pass the types of `Leasehold::Claim`"
        raise Error::Invalid.new(message, code: "INVALID_UPDATE", rejected: [rejected])
      end

      def claim(metadata)
        bucket, subject, source = metadata.bucket, metadata.subject, metadata.source
        Claim.new(
          bucket_type: number(V1::Bucket::Type, bucket.type),
          bucket_value: bucket.value,
          subject_type: subject && number(V1::Subject::Type, subject.type),
          subject_id: subject&.id,
          source_type: number(V1::Source::Type, source.type),
          source_id: source.rails_primary_key_id
        )
      end

      # Returns the number of an enumeration's member. google-protobuf returns the number itself for
      # a member that the contract does not name.
      def number(enum, value)
        value.is_a?(Integer) ? value : enum.resolve(value)
      end

      def time(timestamp)
        Time.at(timestamp.seconds, timestamp.nanos, :nanosecond).utc
      end
    end
  end
end
