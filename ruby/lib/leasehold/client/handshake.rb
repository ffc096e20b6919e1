# frozen_string_literal: true

require "io/wait"
require "openssl"
require "socket"

module Leasehold
  class Client
    # A handshake beside gRPC's core, which takes a server that refuses the client's certificate for one that is away: the
    # alert that says so comes after the handshake, and is dropped there.
    class Handshake
      # How the core tells of a connection that ended before anything could be sent over it.
      DROPPED = /failed to connect.*(endpoint read failed|connection reset|socket closed)/i

      # @param pems [Hash{Symbol => String}] `ca`, `certificate` and `key`
      # @param seconds [Numeric] for each wait
      def initialize(address, pems, seconds)
        @host, _, @port = address.rpartition(":")
        @pems = pems
        @seconds = seconds
      end

      # @return [String, nil] why the server refuses the certificate; nil where it does not, or says nothing
      def alert
        Socket.tcp(@host.delete("[]"), Integer(@port, 10), connect_timeout: @seconds) do |socket|
          tls = OpenSSL::SSL::SSLSocket.new(socket, context)
          tls.hostname = @host
          wait(socket) { tls.connect_nonblock(exception: false) } && wait(socket) { tls.read_nonblock(1, exception: false) }
        end
        nil
      rescue OpenSSL::SSL::SSLError => e
        e.message[/alert (.+)/, 1]
      rescue SystemCallError, SocketError, IOError
        nil
      end

      # Without the key.
      def inspect
        "#<#{self.class} with #{@host}:#{@port}>"
      end

      private

      def context
        OpenSSL::SSL::SSLContext.new.tap do |context|
          context.verify_mode = OpenSSL::SSL::VERIFY_PEER
          context.cert_store = OpenSSL::X509::Store.new.tap { |store| certificates(:ca).each { |one| store.add_cert(one) } }
          own, *chain = certificates(:certificate)
          context.add_certificate(own, OpenSSL::PKey.read(@pems.fetch(:key), ""), chain)
          context.alpn_protocols = ["h2"]
        end
      end

      def certificates(name)
        OpenSSL::X509::Certificate.load(@pems.fetch(name))
      end

      # What the block comes to once the socket is ready for it; nil where that takes too long.
      def wait(socket)
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
