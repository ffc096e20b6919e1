# frozen_string_literal: true

module Leasehold
  module TestHelp
    # The state of a {StubServer} from before its first change in a transaction of the test framework. Such
    # transactions are opened for each test, and for each `before_all` of test-prof. The claims of a rolled back
    # transaction disappear with its rows.
    class SavedState
      include ActiveRecordCompat::Participant

      # @return [StubServer]
      attr_reader :server
      # @return [Native::Service]
      attr_reader :service
      # @return [Integer] the number of updates that had been begun
      attr_reader :updates

      def initialize(server, service, updates)
        @server = server
        @service = service
        @updates = updates
      end

      def rolledback!(**)
        @server.restore(self)
      end

      def committed!(**)
        @server.keep(self)
      end
    end
  end
end
