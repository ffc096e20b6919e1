# frozen_string_literal: true

require "openssl"

module Leasehold
  class Client
    # Who the cell is, and whom it trusts: checked when the client is made, so that a mistake is named instead of
    # showing as a server that does not answer.
    class Credentials
      FILES = %i[ca certificate key].freeze
      # Where the generated initializer takes them from.
      VARIABLES = { ca: "LEASEHOLD_CA", certificate: "LEASEHOLD_CERT", key: "LEASEHOLD_KEY" }.freeze

      # @param tls [Hash] see {Configuration#tls}
      # @raise [Error::Misconfigured]
      def self.load(tls)
        return new(nil) if tls == { insecure: true }

        unless tls.keys.sort == FILES
          refuse("`tls` names #{tls.keys.inspect}: name `ca`, `certificate` and `key`, or `insecure: true` alone")
        end
        new(FILES.to_h { |name| [name, read(name, tls.fetch(name))] }).tap(&:check)
      end

      def self.read(name, path)
        if path.to_s.empty?
          refuse("`tls.#{name}` is #{path.inspect}: say the path of a PEM file (the generated initializer takes it from " \
                 "`#{VARIABLES.fetch(name)}`)")
        end
        File.read(path)
      rescue SystemCallError, TypeError => e
        refuse("cannot read `tls.#{name}`: #{e.message}")
      end

      def self.refuse(message)
        raise Error::Misconfigured, message
      end

      private_class_method :new, :read

      def initialize(pems)
        @pems = pems
      end

      # gRPC's core takes anything for a PEM.
      def check
        parse(:ca) { |pem| OpenSSL::X509::Certificate.new(pem) }
        certificate = parse(:certificate) { |pem| OpenSSL::X509::Certificate.new(pem) }
        key = parse(:key) { |pem| OpenSSL::PKey.read(pem, "") }
        Credentials.refuse("`tls.key` is not the key of `tls.certificate`") unless certificate.check_private_key(key)
      end

      # Why a server that could not be reached may be none that is away: it may refuse the certificate.
      #
      # @param error [Error::Unavailable]
      # @return [Error]
      def explain(error, address, seconds)
        alert = Handshake.new(address, @pems, seconds).alert if @pems && Handshake::DROPPED.match?(error.message)
        return error unless alert

        Error::Misconfigured.new(
          "the server does not accept `tls.certificate` (#{alert}): check that the authority that the server trusts, its " \
          "`client_ca`, has signed it, and that it has not expired", code: "TLS_REFUSED"
        )
      end

      # Without the key.
      def inspect
        "#<#{self.class}#{" insecure" unless @pems}>"
      end

      # What a channel takes.
      def for_channel
        return :this_channel_is_insecure unless @pems

        GRPC::Core::ChannelCredentials.new(*@pems.values_at(:ca, :key, :certificate))
      end

      private

      def parse(name)
        yield @pems.fetch(name)
      rescue OpenSSL::OpenSSLError => e
        Credentials.refuse("`tls.#{name}` is not valid PEM: #{e.message}")
      end
    end
  end
end
