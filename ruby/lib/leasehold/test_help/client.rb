# frozen_string_literal: true

require "leasehold/client"
require_relative "stub"

module Leasehold
  module TestHelp
    # The gem's own client, connected to a {StubServer}: tries, errors, circuit breaker, notifications and messages
    # are those of a real connection.
    class Client < Leasehold::Client
      # A connection without a channel.
      class Connection < Leasehold::Client::Connection
        def initialize(configuration, server)
          @server = server
          super(configuration, nil)
        end

        # Returns true in a forked process too: there is no socket that only the parent may use.
        def current?
          true
        end

        def close; end

        private

        def connect(*)
          Stub.new(@server)
        end
      end

      # @param server [StubServer]
      # @param cell_id [Integer]
      def initialize(server, cell_id)
        settings = Leasehold.configuration.dup
        settings.address = "127.0.0.1:1"
        settings.cell_id = cell_id
        settings.tls = { insecure: true }
        @server = server
        super(settings)
      end

      # Keeps the connection, because the stub server exists as long as its client.
      def close; end

      private

      def connection
        @lock.synchronize { @connection ||= Connection.new(@configuration, @server) }
      end
    end
  end
end
