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
        # @param stub [Object] takes the place of the generated stub
        def initialize(configuration, stub)
          @stub_in_process = stub
          super(configuration, nil)
        end

        # Returns true in a forked process too: there is no socket that only the parent may use.
        def current?
          true
        end

        def close; end

        private

        def connect(*)
          @stub_in_process
        end
      end

      # Returns the application's settings, without those of its server.
      #
      # @return [Configuration]
      def self.settings
        Leasehold.configuration.dup.tap do |settings|
          settings.address = "127.0.0.1:1"
          settings.tls = { insecure: true }
          settings.store_id = nil
        end
      end

      # @param server [StubServer]
      # @param cell_id [Integer]
      def initialize(server, cell_id)
        @server = server
        super(self.class.settings.tap { |settings| settings.cell_id = cell_id })
      end

      # Keeps the connection, because the stub server exists as long as its client.
      def close; end

      private

      def connection
        @lock.synchronize { @connection ||= Connection.new(@configuration, Stub.new(@server)) }
      end
    end
  end
end
