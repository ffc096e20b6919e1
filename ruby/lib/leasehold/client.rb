# frozen_string_literal: true

require "securerandom"

require "leasehold"
require "leasehold/proto/gitlab/cells/topology_service/claims/v1/claim_service_services_pb"
require "leasehold/proto/leasehold/v1/rejection_pb"

require_relative "client/call"
require_relative "client/circuit_breaker"
require_relative "client/connection"
require_relative "client/credentials"
require_relative "client/expected_store"
require_relative "client/handshake"
require_relative "client/instrumentation"
require_relative "client/messages"
require_relative "client/received_page"
require_relative "client/status_translation"

module Leasehold
  # A client of the claims server, for one cell. Threads can share it. After a fork each process
  # connects anew with its first call.
  #
  # Every call raises a subclass of {Error} if it is refused or fails. `deadline_seconds` is the time
  # for one try; a call without an answer is tried again.
  #
  # @example Claim a username, commit the local transaction, then commit the lease
  #   lease = client.begin_update(creates: [claim])
  #   save_locally ? client.commit_update(lease.uuid) : client.rollback_update(lease.uuid)
  class Client
    # Request metadata: the idempotency key of a begin (B09).
    IDEMPOTENCY_KEY = "leasehold-idempotency-key"
    # Response metadata: the fence of the begun lease (B13).
    FENCE = "leasehold-fence"
    # Response metadata: the server's clock.
    SERVER_TIME = "leasehold-server-time-micros"
    # Response metadata: the server's version.
    SERVER_VERSION = "leasehold-server-version"
    # Request and response metadata: the id of a store. A response names the server's store, a request the
    # expected one.
    STORE_ID = "leasehold-store-id"

    # @param configuration [Configuration]
    # @raise [Error::Misconfigured] if a setting or certificate is invalid
    def initialize(configuration = Leasehold.configuration)
      @configuration = configuration.validate!
      @credentials = Credentials.load(configuration.tls)
      @messages = Messages.new(configuration.cell_id)
      @store = ExpectedStore.new(configuration.store_id)
      @lock = Mutex.new
    end

    # Begins an update: takes a lease on all creates and destroys, or on none (B01). All tries carry
    # the same idempotency key, so a retry gets the lease of a first try whose answer was lost
    # (B09).
    #
    # @param creates [Array<Claim, Hash>]
    # @param destroys [Array<Claim, Hash>]
    # @param organization_id [Integer] the organization that the update is for, which the server keeps with the
    #   lease; nil for none
    # @param idempotency_key [String] a key that later calls can repeat; random unless given
    # @raise [Error::Taken, Error::Busy, Error::Changed, Error::NotFound, Error::NotOwner,
    #   Error::Invalid] with the rejected claims
    # @raise [Error::RolledBack] if the lease of an earlier begin with this key was rolled back
    # @raise [Error::Overloaded, Error::CircuitOpen] if the begin was not sent
    # @return [Lease]
    def begin_update(creates: [], destroys: [], organization_id: nil, idempotency_key: nil, deadline_seconds: nil)
      request = @messages.begin_update(creates, destroys, organization_id)
      counts = { creates: creates.size, destroys: destroys.size }
      key = idempotency_key || SecureRandom.uuid
      send_begin(:begin_update, request, counts, key, deadline_seconds) { |send| connection.breaker.run(&send) }
    end

    # Begins an update that {Verification} has already encoded for the wire.
    #
    # @param update [Verification::Begin]
    # @param idempotency_key [String] see {#begin_update}
    # @return [Lease]
    def begin_encoded(update, idempotency_key: nil, deadline_seconds: nil)
      key = idempotency_key || SecureRandom.uuid
      request = @messages.begin_encoded(update.encoded)
      counts = { creates: update.create_count, destroys: update.destroy_count }
      send_begin(:begin_encoded, request, counts, key, deadline_seconds) { |send| connection.breaker.run(&send) }
    end

    # Returns the lease of a begin whose answer was lost, so that the caller can roll it back. If
    # that begin never arrived, this call begins a new lease; the caller rolls that lease back too.
    # Rolling back frees claims that others wait for, so the circuit breaker neither limits nor
    # counts this call.
    #
    # @param organization_id [Integer, nil] the organization of that begin
    # @param idempotency_key [String] the key of that begin
    # @raise [Error::RolledBack] if the lease of that begin was rolled back
    # @return [Lease]
    def recover_lease(creates:, destroys:, idempotency_key:, organization_id: nil, deadline_seconds: nil)
      request = @messages.begin_update(creates, destroys, organization_id)
      counts = { creates: creates.size, destroys: destroys.size }
      send_begin(:begin_update, request, counts, idempotency_key, deadline_seconds, &:call)
    end

    # Commits a lease. Succeeds if it is committed already (B22).
    #
    # @raise [Error::RolledBack, Error::NotFound, Error::NotOwner]
    # @return [void]
    def commit_update(uuid, deadline_seconds: nil)
      settle(:commit_update, uuid, deadline_seconds)
    end

    # Rolls a lease back. Succeeds if it is rolled back already (B22).
    #
    # @raise [Error::Committed, Error::NotFound, Error::NotOwner]
    # @return [void]
    def rollback_update(uuid, deadline_seconds: nil)
      settle(:rollback_update, uuid, deadline_seconds)
    end

    # Lists the cell's outstanding leases, oldest first.
    #
    # @param created_after [Time] inclusive
    # @param cursor [String] the `cursor` of the page before
    # @return [LeasePage]
    def list_leases(created_after: nil, cursor: nil, limit: nil, deadline_seconds: nil)
      request = @messages.list_leases(created_after, cursor, limit)
      Instrumentation.measure(:list_leases) do |payload|
        response, headers = call(:list_leases, request, payload, deadline_seconds)
        @messages.lease_page(response, server_time(headers), headers[SERVER_VERSION])
      end
    end

    # Lists the cell's records of one table, in the order of source ids.
    #
    # @param bucket_types [Array<Integer>] at least one
    # @param after [String] a source id, exclusive; nil for no lower bound
    # @param upto [String] a source id, inclusive; nil for no upper bound
    # @raise [Error::Invalid] if `bucket_types` is empty
    # @return [RecordPage]
    def list_records(source_type:, bucket_types:, after: nil, upto: nil, deadline_seconds: nil)
      request = @messages.list_records(source_type, bucket_types, after, upto)
      Instrumentation.measure(:list_records) do |payload|
        response, headers = call(:list_records, request, payload, deadline_seconds)
        ReceivedPage.new(response, server_time(headers), @messages)
      end
    end

    # Returns the record of a bucket, whichever cell owns it. Only administrators may call this.
    #
    # @raise [Error::NotFound, Error::Denied]
    # @return [Record]
    def get_record(bucket_type, value, deadline_seconds: nil)
      request = @messages.get_record(bucket_type, value)
      Instrumentation.measure(:get_record) do |payload|
        response, = call(:get_record, request, payload, deadline_seconds)
        @messages.record(response.record)
      end
    end

    # Connects ahead of the first request. Lists leases from tomorrow on, of which the server has
    # none.
    #
    # @return [void]
    def warm_up(deadline_seconds: @configuration.verification_deadline_seconds)
      list_leases(created_after: Time.now + 86_400, limit: 1, deadline_seconds: deadline_seconds)
      nil
    end

    # Closes the connection of this process. The next call connects anew.
    #
    # @return [void]
    def close
      connection = @lock.synchronize { @connection.tap { @connection = nil } }
      connection&.close
    end

    # Returns a text without the private key.
    #
    # @return [String]
    def inspect
      "#<#{self.class} of cell #{@configuration.cell_id} at #{@configuration.address}>"
    end

    private

    # @yieldparam send [Proc] sends the begin; the block decides if and how to call it
    def send_begin(method, request, counts, key, deadline_seconds)
      Instrumentation.measure(:begin_update, **counts) do |payload|
        yield lambda {
          response, headers = call(method, request, payload, deadline_seconds, { IDEMPOTENCY_KEY => key })
          Lease.new(uuid: response.lease_uuid.value, fence: headers[FENCE]&.to_i)
        }
      end
    end

    def settle(method, uuid, deadline_seconds)
      request = @messages.public_send(method, uuid)
      Instrumentation.measure(method) { |payload| call(method, request, payload, deadline_seconds) }
      nil
    end

    def call(method, request, payload, deadline_seconds, metadata = {})
      seconds = deadline_seconds || @configuration.request_deadline_seconds
      call = Call.new(method, metadata: metadata, tries: @configuration.tries, deadline_seconds: seconds, store: @store)
      call.run(connection.stub, request)
    rescue Error::Unavailable => error
      raise @credentials.diagnose(error, @configuration.address, seconds)
    ensure
      payload[:tries] = call.attempts if call
    end

    # Returns this process's connection. A channel must not be used after a fork: its threads exist
    # only in the parent process, and its socket belongs to the parent.
    def connection
      @lock.synchronize do
        @connection = Connection.new(@configuration, @credentials) unless @connection&.current?
        @connection
      end
    end

    def server_time(headers)
      micros = headers.fetch(SERVER_TIME) do
        raise Error::Misconfigured,
              "the server's answer lacks its time (`#{SERVER_TIME}`): run a server of at least this gem's version"
      end
      Time.at(0, Integer(micros, 10), :microsecond).utc
    end
  end
end
