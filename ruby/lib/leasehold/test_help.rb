# frozen_string_literal: true

# Helpers for an application's tests, by Minitest or RSpec. Add `require "leasehold/test_help"` to
# `test/test_helper.rb`. `leasehold/rspec` requires this file.

require "leasehold/rails"

module Leasehold
  # Included in `ActiveSupport::TestCase`, or in RSpec's examples by `leasehold/rspec`. Each test ends with the client
  # and the flags that it began with.
  module TestHelp
    # Replaces the client: accepts every update, stores nothing, and needs no server.
    class AcceptingClient
      # @return [Array<Array(Array<Claim>, Array<Claim>)>] the creates and destroys of each update that was begun
      attr_reader :updates

      def initialize
        @updates = []
      end

      def begin_update(creates: [], destroys: [], **)
        @updates << [creates, destroys]
        Lease.new(uuid: SecureRandom.uuid, fence: @updates.size)
      end

      def commit_update(_uuid, **); end

      def rollback_update(_uuid, **); end

      def close; end
    end

    # Restores after each test of Minitest. RSpec's hook is in `leasehold/rspec`.
    def self.included(base)
      base.teardown { restore_leasehold } if base.respond_to?(:teardown)
    end

    # Replaces the claims server by one that accepts every update, until the end of the test.
    #
    # @return [AcceptingClient]
    def stub_claims_server
      Leasehold.client = @leasehold_client = AcceptingClient.new
    end

    # Switches feature flags on or off, until the end of the test. Other flags stay as they are.
    #
    # @param flags [Hash{Symbol => Boolean}]
    def stub_feature_flags(**flags)
      configuration = Leasehold.configuration
      @leasehold_settings ||= configuration.dup
      before = configuration.dup
      configuration.feature_enabled { |flag| flags.fetch(flag) { before.feature_enabled?(flag) } }
    end

    # Undoes what the test replaced.
    def restore_leasehold
      Leasehold.reset_client if @leasehold_client
      settings = @leasehold_settings
      Leasehold.configuration.feature_enabled { |flag| settings.feature_enabled?(flag) } if settings
      @leasehold_client = @leasehold_settings = nil
    end
  end
end

# Each test runs in a transaction that is never committed; a COMMIT inside it is the release of a savepoint.
Leasehold.configuration.transactional_tests = true

ActiveSupport.on_load(:active_support_test_case) { include Leasehold::TestHelp }
