# frozen_string_literal: true

require "google/protobuf/well_known_types"
require "google/rpc/error_details_pb"
require "google/rpc/status_pb"

module Leasehold
  class Client
    # From a status of gRPC, with its rich details, to an error of ours.
    module Refusal
      # Where no detail names a reason: what stands between may answer as well as the server.
      BY_STATUS = {
        GRPC::Core::StatusCodes::CANCELLED => ["CANCELLED", Error::Unavailable],
        GRPC::Core::StatusCodes::INVALID_ARGUMENT => ["INVALID_ARGUMENT", Error::Invalid],
        GRPC::Core::StatusCodes::DEADLINE_EXCEEDED => ["DEADLINE_EXCEEDED", Error::DeadlineExceeded],
        GRPC::Core::StatusCodes::NOT_FOUND => ["NOT_FOUND", Error::NotFound],
        GRPC::Core::StatusCodes::ALREADY_EXISTS => ["ALREADY_EXISTS", Error::Taken],
        GRPC::Core::StatusCodes::PERMISSION_DENIED => ["PERMISSION_DENIED", Error::Denied],
        GRPC::Core::StatusCodes::RESOURCE_EXHAUSTED => ["RESOURCE_EXHAUSTED", Error::Overloaded],
        GRPC::Core::StatusCodes::OUT_OF_RANGE => ["OUT_OF_RANGE", Error::Invalid],
        GRPC::Core::StatusCodes::UNAVAILABLE => ["UNAVAILABLE", Error::Unavailable],
        GRPC::Core::StatusCodes::UNAUTHENTICATED => ["UNAUTHENTICATED", Error::Unauthenticated]
      }.freeze

      # How gRPC's core, which has no status for it, tells of a certificate that was refused, or of no TLS at all. What is
      # cut off in the middle may come back.
      HANDSHAKE = /ssl handshake failed.*ssl_error_ssl(?!.*unexpected eof)|not in peer certificate|hostname verification/i

      class << self
        # @param status [GRPC::BadStatus]
        # @return [Error]
        def error(status)
          return handshake(status) if status.code == GRPC::Core::StatusCodes::UNAVAILABLE && HANDSHAKE.match?(status.details)

          details = details(status)
          info = details[Google::Rpc::ErrorInfo]
          code, error = kind(status, info)
          error.new(
            status.details,
            code: code,
            rejected: rejected(details[V1::RejectedClaims]),
            retry_after_seconds: delay(details[Google::Rpc::RetryInfo]),
            metadata: info ? info.metadata.to_h : {}
          )
        end

        private

        def handshake(status)
          Error::Misconfigured.new(
            "no TLS with the server: check that `tls.ca` has signed its certificate, and that this is for the host in " \
            "`address` (#{status.details})", code: "TLS_REFUSED"
          )
        end

        def kind(status, info)
          known = info && Error::BY_CODE[info.reason]
          return [info.reason, known] if known

          BY_STATUS.fetch(status.code) { ["GRPC_#{status.code}", Error::Internal] }
        end

        # The details that we know, by their class.
        def details(status)
          rich = status.to_rpc_status
          classes = [Google::Rpc::ErrorInfo, Google::Rpc::RetryInfo, V1::RejectedClaims]
          classes.to_h { |type| [type, rich&.details&.find { |any| any.is(type) }&.unpack(type)] }
        end

        def rejected(claims)
          claims ? claims.groups.flat_map { |group| group.claims.flat_map { |some| places(group.reason, some) } } : []
        end

        def places(code, claims)
          number = claims.bucket_type
          number = Messages::V1::Bucket::Type.resolve(number) if number.is_a?(Symbol)
          { create: claims.create_positions, destroy: claims.destroy_positions }.flat_map do |list, positions|
            positions.map { |at| RejectedClaim.new(list: list, position: at, bucket_type: number, code: code) }
          end
        end

        def delay(info)
          info && info.retry_delay.seconds + info.retry_delay.nanos / 1e9
        end
      end
    end
  end
end
