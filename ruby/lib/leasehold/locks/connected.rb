# frozen_string_literal: true

module Leasehold
  class Locks
    # The connection of this process, for calls of sessions, locks and queues.
    module Connected
      # @param configuration [Configuration]
      # @raise [Error::Misconfigured] if a setting or certificate is invalid
      def initialize(configuration = Leasehold.configuration)
        @configuration = configuration.validate_connection!
        @credentials = Client::Credentials.load(configuration.tls)
        @lock = Mutex.new
      end

      # @return [String]
      def inspect
        "#<#{self.class} at #{@configuration.address}>"
      end

      private

      def calls
        @lock.synchronize { current_calls }
      end

      # Returns the connection of this process. A channel must not be used after a fork (see {Client}).
      def current_calls
        @calls = Calls.new(@configuration, @credentials) unless @calls&.current?
        @calls
      end
    end
  end
end
