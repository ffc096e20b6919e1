# frozen_string_literal: true

require "io/wait"
require "openssl"
require "socket"

module Leasehold
  class Client
    # A TLS handshake apart from gRPC's core, to learn if the server refuses the client's
    # certificate. With TLS 1.3 the server's alert arrives after the handshake (RFC 8446, 4.4.2.4
    # and 6.2). gRPC's core discards the alert and reports an unavailable server.
    class Handshake
      # Messages of gRPC's core for a connection that ended before anything was sent (grpc 1.51.1,
      # src/core/ext/transport/chttp2/transport/chttp2_transport.cc:2347).
      CONNECTION_DROPPED = /failed to connect.*(endpoint read failed|connection reset|socket closed)/i

      # @param pems [Hash{Symbol => String}] `ca`, `certificate` and `key`
      # @param seconds [Numeric] maximum duration of each wait
      def initialize(address, pems, seconds)
        @host, _, @port = address.rpartition(":")
        @pems = pems
        @seconds = seconds
      end

      # @return [String, nil] the server's alert; nil if it accepts the certificate or does not
      #   answer
      def alert
        Socket.tcp(@host.delete("[]"), Integer(@port, 10), connect_timeout: @seconds) do |socket|
          tls = OpenSSL::SSL::SSLSocket.new(socket, context)
          tls.hostname = @host
          connected = when_ready(socket) { tls.connect_nonblock(exception: false) }
          when_ready(socket) { tls.read_nonblock(1, exception: false) } if connected
        end
        nil
      rescue OpenSSL::SSL::SSLError => error
        error.message[/alert (.+)/, 1]
      rescue SystemCallError, SocketError, IOError
        nil
      end

      # Returns a text without the private key.
      def inspect
        "#<#{self.class} with #{@host}:#{@port}>"
      end

      private

      def context
        OpenSSL::SSL::SSLContext.new.tap do |context|
          context.verify_mode = OpenSSL::SSL::VERIFY_PEER
          context.cert_store = OpenSSL::X509::Store.new
          certificates(:ca).each { |authority| context.cert_store.add_cert(authority) }
          own, *chain = certificates(:certificate)
          context.add_certificate(own, OpenSSL::PKey.read(@pems.fetch(:key), ""), chain)
          context.alpn_protocols = ["h2"]
        end
      end

      def certificates(name)
        OpenSSL::X509::Certificate.load(@pems.fetch(name))
      end

      # Repeats the block until it needs no further input or output.
      #
      # @return [Object, nil] the block's result; nil if the socket was not ready in time
      def when_ready(socket)
        loop do
          result = yield
          ready = case result
                  when :wait_readable then socket.wait_readable(@seconds)
                  when :wait_writable then socket.wait_writable(@seconds)
                  else return result
                  end
          return unless ready
        end
      end
    end
  end
end
