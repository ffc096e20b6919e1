# frozen_string_literal: true

require "google/protobuf/well_known_types"
require "google/rpc/error_details_pb"
require "google/rpc/status_pb"

module Leasehold
  class Client
    # Converts a gRPC status, with its details, to a class of {Error}.
    module StatusTranslation
      REJECTED_CLAIMS = Contract::Leasehold::V1::RejectedClaims
      private_constant :REJECTED_CLAIMS

      # Codes and classes for a status without a reason: a proxy may answer instead of the server.
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

      # Messages of gRPC's core for a failed TLS handshake, which has no status code of its own
      # (grpc 1.51.1, src/core/lib/security/transport/security_handshaker.cc:394;
      # security_connector/ssl_utils.cc:161; credentials/tls/grpc_tls_certificate_verifier.cc:172).
      # An unexpected end of the connection is excluded, because it may be temporary.
      TLS_FAILURE = /ssl handshake failed.*ssl_error_ssl(?!.*unexpected eof)|not in peer certificate|hostname verification/i

      class << self
        # @param status [GRPC::BadStatus]
        # @return [Error]
        def error(status)
          return tls_error(status) if status.code == GRPC::Core::StatusCodes::UNAVAILABLE && TLS_FAILURE.match?(status.details)

          details = details(status)
          info = details[Google::Rpc::ErrorInfo]
          code, error_class = code_and_class(status, info)
          error_class.new(
            status.details,
            code: code,
            rejected: rejected(details[REJECTED_CLAIMS]),
            retry_after_seconds: seconds_of(details[Google::Rpc::RetryInfo]),
            metadata: info ? info.metadata.to_h : {}
          )
        end

        private

        def tls_error(status)
          Error::Misconfigured.new(
            "no TLS connection to the server: check that its certificate is signed by `tls.ca` and names the host in " \
            "`address` (#{status.details})", code: "TLS_REFUSED"
          )
        end

        def code_and_class(status, info)
          error_class = info && Error::BY_CODE[info.reason]
          return [info.reason, error_class] if error_class

          BY_STATUS.fetch(status.code) { ["GRPC_#{status.code}", Error::Internal] }
        end

        # @return [Hash{Class => Object}] the known details by class; nil for an absent one
        def details(status)
          rich = status.to_rpc_status
          classes = [Google::Rpc::ErrorInfo, Google::Rpc::RetryInfo, REJECTED_CLAIMS]
          classes.to_h { |type| [type, rich&.details&.find { |any| any.is(type) }&.unpack(type)] }
        end

        def rejected(claims)
          return [] unless claims

          claims.groups.flat_map { |group| group.claims.flat_map { |positions| rejected_claims(group.reason, positions) } }
        end

        def rejected_claims(code, claims)
          number = claims.bucket_type
          number = Messages::V1::Bucket::Type.resolve(number) if number.is_a?(Symbol)
          { create: claims.create_positions, destroy: claims.destroy_positions }.flat_map do |list, positions|
            positions.map { |position| RejectedClaim.new(list: list, position: position, bucket_type: number, code: code) }
          end
        end

        def seconds_of(info)
          info && info.retry_delay.seconds + info.retry_delay.nanos / 1e9
        end
      end
    end
  end
end
