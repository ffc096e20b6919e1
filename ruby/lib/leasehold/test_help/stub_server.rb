# frozen_string_literal: true

require "forwardable"

require "leasehold/native"
require_relative "client"
require_relative "clock"
require_relative "lock_server"
require_relative "saved_state"

module Leasehold
  module TestHelp
    # A server in this process: the engine itself, over a store in memory. The stub server follows all rules of a real
    # server. Its clock is `Time.now`, so `travel_to` moves the clock. {LockServer} has its sessions and locks.
    class StubServer
      extend Forwardable

      def_delegators :@lock_server, :locks, :other_locks, :longest_wait, :longest_wait=
      def_delegators :@lock_server, :hold_lock, :force_lock, :end_withholding, :expire_session, :jeopardize_session,
                     :reap_namespace

      # @return [Array<Array(Array<Claim>, Array<Claim>)>] the creates and destroys of each update that the
      #   application's cell has begun
      attr_reader :updates
      # @return [Client] the client of the application's cell
      attr_reader :client

      # @param original [StubServer, nil] a server whose claims, leases and locks are copied into the new one
      # @param follows_transactions [Boolean] true to undo changes when the test transaction around them is rolled
      #   back; a server of a single test needs no undoing
      def initialize(original = nil, follows_transactions: false)
        @cell = Leasehold.configuration.cell_id || 1
        @service = original ? original.copy_of_service : Native::Service.new([@cell, other_cell])
        @follows_transactions = follows_transactions
        @lock = Monitor.new
        @updates = []
        @saved_states = []
        @client = Client.new(self, @cell)
        @lock_server = LockServer.new(original&.lock_server)
      end

      # Gives a value to another cell, so that it is taken.
      #
      # @param type [Symbol, Integer] a member of `CLAIMS_BUCKET_TYPE`
      # @param busy [Boolean] true to leave the other cell's update under way, so that the value is busy
      # @return [void]
      def hold(value, type:, busy: false)
        types = Cells::Claimable
        claim = Claim.new(
          bucket_type: Enumeration.number(types::CLAIMS_BUCKET_TYPE, type), bucket_value: value,
          subject_type: types::CLAIMS_SUBJECT_TYPE::USER, subject_id: 1,
          source_type: types::CLAIMS_SOURCE_TYPE::RAILS_TABLE_USERS, source_id: Native.encode_source_id(1)
        )
        other = Client.new(self, other_cell)
        lease = other.begin_update(creates: [claim])
        other.commit_update(lease.uuid) unless busy
      end

      # Makes every call fail as if the server could not be reached, until {#start}.
      def stop
        @stopped = true
        @lock_server.stop
      end

      # Makes calls succeed again after {#stop}.
      def start
        @stopped = false
        @lock_server.start
      end

      # Ends all waits for locks, and the sessions with their threads.
      #
      # @return [void]
      def close
        @lock_server.close
      end

      # Calls the engine.
      #
      # @yieldparam service [Native::Service]
      # @yieldparam now [Integer] microseconds since 1970
      # @raise [GRPC::Unavailable] after {#stop}
      def call
        raise GRPC::Unavailable, "the stub server is stopped" if @stopped

        @lock.synchronize { yield @service, Clock.micros }
      end

      # Begins an update. The update is added to {#updates} if the cell is the application's own and no earlier
      # call with the same idempotency key began it.
      #
      # @param organization_id [Integer] 0 for none
      # @return [Array(String, Integer)] the lease and its fence
      def begin(cell, creates, destroys, organization_id, key)
        call do |service, now|
          save_state
          lease = SecureRandom.random_bytes(16).unpack("Q2")
          uuid, fence, replayed = service.begin(cell, creates, destroys, organization_id, key, lease, now)
          @updates << [creates, destroys] if cell == @cell && !replayed
          [uuid, fence]
        end
      end

      # Restores the state from before a test transaction that is rolled back. States that were saved later are
      # dropped: their transactions are inside of the one rolled back, or belong to another database of the same
      # test.
      def restore(state)
        @lock.synchronize do
          position = @saved_states.index { |saved| saved.equal?(state) } or return
          @service = state.service
          @updates = @updates.first(state.updates)
          @saved_states = @saved_states.first(position)
        end
      end

      # Drops the state from before a test transaction that is committed.
      def keep(state)
        @lock.synchronize { @saved_states.delete_if { |saved| saved.equal?(state) } }
      end

      # Returns a text without the claims.
      def inspect
        "#<#{self.class} of cell #{@cell}#{" stopped" if @stopped}>"
      end

      protected

      attr_reader :lock_server

      def copy_of_service
        @lock.synchronize { @service.copy }
      end

      private

      # Returns the number of a cell that is not the application's.
      def other_cell
        @cell + 1
      end

      # Saves the state before a change, once for each open transaction of the test framework.
      def save_state
        return unless @follows_transactions && Leasehold.configuration.transactional_tests

        ActiveRecordCompat.test_transactions.each do |transaction|
          next if ActiveRecordCompat.participants(transaction, SavedState).any? { |state| state.server.equal?(self) }

          state = SavedState.new(self, @service.copy, @updates.size)
          @saved_states << state
          ActiveRecordCompat.join(transaction, state)
        end
      end
    end
  end
end
