# frozen_string_literal: true

require "leasehold/locks"
require_relative "client"
require_relative "lock_stub"

module Leasehold
  module TestHelp
    # The gem's own locks of one process, connected to a {LockServer}: sessions, renewals, repeated calls and errors
    # are those of a real connection.
    class Locks < Leasehold::Locks
      # The calls of sessions and locks, without a channel.
      class Calls < Leasehold::Locks::Calls
        def initialize(configuration, server)
          @server = server
          super(configuration, Leasehold::Client::Credentials.load({ insecure: true }))
        end

        private

        def connect
          connection = Client::Connection.new(@configuration, LockStub.new(@server))
          [connection, connection.stub]
        end
      end

      # The longest terms that a server allows, in seconds. They do not pass while a test runs, nor while a debugger
      # stops it.
      TERMS = { session_duration_seconds: 86_400, session_grace_seconds: 3_600 }.freeze
      private_constant :TERMS

      # @param server [LockServer]
      def initialize(server)
        @server = server
        super(Client.settings.tap { |settings| TERMS.each { |name, seconds| settings.public_send("#{name}=", seconds) } })
      end

      # Renews the session now. The process so learns at once what it would learn with its next renewal.
      #
      # @return [void]
      def renew
        session = @lock.synchronize { @session }
        session.renew if session&.usable?
      end

      # Puts the session into jeopardy, as if the last call that the server answered was sent so long ago.
      #
      # @return [Boolean] false if there is no session
      def jeopardize
        session = @lock.synchronize { @session }
        return false unless session&.usable?

        deadlines = Native::Deadlines.new(*TERMS.values.map { |seconds| Leasehold::Locks::Messages.micros(seconds) })
        session.renewed(Leasehold::Locks::Clock.micros - deadlines.safe_micros)
        true
      end

      # @return [String, nil] the id of this process's session, 16 bytes; nil if there is none
      def session_id
        session = @lock.synchronize { @session }
        session.id if session&.usable?
      end

      private

      def current_calls
        @calls ||= Calls.new(@configuration, @server)
      end
    end
  end
end
