# frozen_string_literal: true

require "openssl"

module Leasehold
  class Client
    # The cell's certificate and key, and the authority that the cell trusts. These files are checked when the
    # client is created: gRPC reports a wrong certificate only as an unavailable server.
    class Credentials
      MEMBERS = %i[ca certificate key].freeze
      # Environment variables with the default paths of these files.
      ENVIRONMENT_VARIABLES = { ca: "LEASEHOLD_CA", certificate: "LEASEHOLD_CERT", key: "LEASEHOLD_KEY" }.freeze

      # @param tls [Hash] see {Configuration#tls}
      # @raise [Error::Misconfigured]
      def self.load(tls)
        return new(nil) if tls == { insecure: true }

        check_keys(tls)
        new(MEMBERS.to_h { |name| [name, read(name, tls.fetch(name))] }).tap(&:check)
      end

      # Checks the keys of the setting, not their values.
      #
      # @raise [Error::Misconfigured]
      def self.check_keys(tls)
        return if tls == { insecure: true } || tls.keys.sort_by(&:to_s) == MEMBERS

        misconfigured("`tls` has the keys #{tls.keys.inspect}: use `ca`, `certificate` and `key`, or only `insecure: true`")
      end

      # @return [String] the content of the file
      # @raise [Error::Misconfigured]
      def self.read(name, path)
        if path.to_s.empty?
          misconfigured("`tls.#{name}` is #{path.inspect}: set the path of a PEM file (the generated initializer reads it from " \
                        "`#{ENVIRONMENT_VARIABLES.fetch(name)}`)")
        end
        File.read(path)
      rescue SystemCallError, TypeError => error
        misconfigured("`tls.#{name}` cannot be read (#{error.message}): set it to the path of a PEM file")
      end

      def self.misconfigured(message)
        raise Error::Misconfigured, message
      end

      private_class_method :new

      def initialize(pems)
        @pems = pems
      end

      # Parses the files and compares key and certificate. gRPC's core accepts any text and fails
      # later.
      def check
        parse(:ca) { |pem| OpenSSL::X509::Certificate.new(pem) }
        certificate = parse(:certificate) { |pem| OpenSSL::X509::Certificate.new(pem) }
        key = parse(:key) { |pem| OpenSSL::PKey.read(pem, "") }
        Credentials.misconfigured("`tls.key` is not the key of `tls.certificate`") unless certificate.check_private_key(key)
      end

      # Explains why the server could not be reached. If the connection was dropped, the server may
      # have refused the certificate.
      #
      # @param error [Error::Unavailable]
      # @return [Error] the same error if the certificate is not the cause
      def diagnose(error, address, seconds)
        alert = Handshake.new(address, @pems, seconds).alert if @pems && Handshake::CONNECTION_DROPPED.match?(error.message)
        return error unless alert

        Error::Misconfigured.new(
          "the server does not accept `tls.certificate` (#{alert}): check that it is signed by the authority in the " \
          "server's `client_ca`, and that it has not expired", code: "TLS_REFUSED"
        )
      end

      # Returns a text without the private key.
      def inspect
        "#<#{self.class}#{" insecure" unless @pems}>"
      end

      # @return [GRPC::Core::ChannelCredentials, Symbol] the credentials argument of
      #   `GRPC::Core::Channel`
      def channel_credentials
        return :this_channel_is_insecure unless @pems

        GRPC::Core::ChannelCredentials.new(*@pems.values_at(:ca, :key, :certificate))
      end

      private

      def parse(name)
        yield @pems.fetch(name)
      rescue OpenSSL::OpenSSLError => error
        Credentials.misconfigured("`tls.#{name}` is not valid PEM: #{error.message}")
      end
    end
  end
end
