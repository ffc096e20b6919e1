# frozen_string_literal: true

# Helpers for an application's tests, by Minitest or RSpec. Add `require "leasehold/test_help"` to
# `test/test_helper.rb`. `leasehold/rspec` requires this file.

require "leasehold/rails"
require_relative "test_help/stub_server"
require_relative "test_help/replacements"

module Leasehold
  # Included in `ActiveSupport::TestCase`, or in RSpec's examples by `leasehold/rspec`. After each test, the
  # client, the locks and the flags are the same as before.
  module TestHelp
    class << self
      # Replaces the server for the whole suite, also for code that runs outside of tests. Each test starts with a
      # copy of the returned server's claims and locks.
      #
      # @return [StubServer]
      def stub_claims_server
        StubServer.new(follows_transactions: true).tap { |server| Replacements.add(owner: :suite, server: server) }
      end

      private

      # Hooks into each test of Minitest. RSpec's hooks are in `leasehold/rspec`.
      def included(base)
        base.setup { Replacements.begin_test(self) } if base.respond_to?(:setup)
        base.teardown { restore_leasehold } if base.respond_to?(:teardown)
      end
    end

    # Replaces the server of claims and locks by the engine in this process, until the end of the test. If it is
    # called outside of a test, for example in `before_all`, the replacement lasts until the end of the outermost
    # group.
    #
    # @return [StubServer] a new server without claims and locks, or the one that this test already has
    def stub_claims_server
      server = Replacements.server_of_test and return server

      StubServer.new(follows_transactions: !Replacements.running).tap { |stub| Replacements.add(server: stub) }
    end

    # Switches feature flags on or off, until the end of the test. Other flags stay as they are.
    #
    # @param flags [Hash{Symbol => Boolean}]
    def stub_feature_flags(**flags)
      Replacements.add(flags: flags)
    end

    # Removes the replacements of the test.
    def restore_leasehold
      Replacements.end_test(self)
    end
  end
end

# Each test runs in a transaction that is never committed; a COMMIT inside it is the release of a savepoint.
Leasehold.configuration.transactional_tests = true

ActiveSupport.on_load(:active_support_test_case) { include Leasehold::TestHelp }
