# frozen_string_literal: true

require "securerandom"

require "leasehold"
require "leasehold/proto/gitlab/cells/topology_service/claims/v1/claim_service_services_pb"
require "leasehold/proto/leasehold/v1/rejection_pb"

require_relative "client/call"
require_relative "client/circuit_breaker"
require_relative "client/connection"
require_relative "client/credentials"
require_relative "client/handshake"
require_relative "client/instrumentation"
require_relative "client/messages"
require_relative "client/received_page"
require_relative "client/refusal"

module Leasehold
  # The way to the claims server, for one cell. Threads share it, and it is never closed by a fork: each process makes a
  # connection of its own with its first call.
  #
  # Every call raises a class of {Error} that says what was refused and why. `deadline_seconds` is the time for one try.
  class Client
    # Request metadata by which the server knows a begin that it has seen.
    IDEMPOTENCY_KEY = "leasehold-idempotency-key"
    # Response metadata with a begun lease's number.
    FENCE = "leasehold-fence"
    # Response metadata with the server's clock.
    SERVER_TIME = "leasehold-server-time-micros"

    # @param configuration [Configuration]
    # @raise [Error::Misconfigured]
    def initialize(configuration = Leasehold.configuration)
      @configuration = configuration.validate!
      @credentials = Credentials.load(configuration.tls)
      @messages = Messages.new(configuration.cell_id)
      @lock = Mutex.new
    end

    # Takes a lease on all creates and destroys, or on none. Both tries carry one idempotency key, so that the second
    # gets the lease of the first.
    #
    # @param creates [Array<Claim, Hash>]
    # @param destroys [Array<Claim, Hash>]
    # @param idempotency_key [String] names the begin for longer than this call
    # @raise [Error::Taken, Error::Busy, Error::Changed, Error::NotFound, Error::NotOwner, Error::Invalid] with the
    #   offending claims
    # @raise [Error::Overloaded, Error::CircuitOpen] where nothing was sent
    # @return [Lease]
    def begin_update(creates: [], destroys: [], idempotency_key: nil, deadline_seconds: nil)
      key = idempotency_key || SecureRandom.uuid
      take_lease(creates, destroys, key, deadline_seconds) { |send| connection.breaker.run(&send) }
    end

    # Does what {#begin_update} does, for an update of {Verification}, which comes in the form of the wire.
    #
    # @param update [Verification::Begin]
    # @return [Lease]
    def begin_encoded(update, deadline_seconds: nil)
      request = @messages.begin_encoded(update.encoded)
      counts = { creates: update.create_count, destroys: update.destroy_count }
      send_begin(:begin_encoded, request, counts, SecureRandom.uuid, deadline_seconds) { |send| connection.breaker.run(&send) }
    end

    # The lease of a begin that nobody answered, to be rolled back: whatever is begun once more here is only begun to be
    # taken back. That frees what others wait for, so no breaker limits it, and none counts it.
    #
    # @param idempotency_key [String] of that begin
    # @return [Lease]
    def recover_lease(creates:, destroys:, idempotency_key:, deadline_seconds: nil)
      take_lease(creates, destroys, idempotency_key, deadline_seconds, &:call)
    end

    # Makes the changes of a lease final.
    #
    # @raise [Error::RolledBack, Error::NotFound, Error::NotOwner]
    # @return [void]
    def commit_update(uuid, deadline_seconds: nil)
      settle(:commit_update, uuid, deadline_seconds)
    end

    # Takes the changes of a lease back.
    #
    # @raise [Error::Committed, Error::NotFound, Error::NotOwner]
    # @return [void]
    def rollback_update(uuid, deadline_seconds: nil)
      settle(:rollback_update, uuid, deadline_seconds)
    end

    # The cell's outstanding leases, oldest first.
    #
    # @param created_after [Time] inclusive
    # @param cursor the one of the page before
    # @return [LeasePage]
    def list_leases(created_after: nil, cursor: nil, limit: nil, deadline_seconds: nil)
      request = @messages.list_leases(created_after, cursor, limit)
      Instrumentation.measure(:list_leases) do |payload|
        response, headers = call(:list_leases, request, payload, deadline_seconds)
        @messages.lease_page(response, server_time(headers))
      end
    end

    # The cell's records out of one table, by source id.
    #
    # @param after [String] bytes of a source id, exclusive; nil is from the first
    # @param upto [String] bytes of a source id, inclusive; nil is to the last
    # @return [RecordPage]
    def list_records(source_type:, bucket_types:, after: nil, upto: nil, deadline_seconds: nil)
      request = @messages.list_records(source_type, bucket_types, after, upto)
      Instrumentation.measure(:list_records) do |payload|
        response, headers = call(:list_records, request, payload, deadline_seconds)
        ReceivedPage.new(response, server_time(headers), @messages)
      end
    end

    # The record of one bucket, whichever cell has it; for administrators.
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

    # Connects ahead of the first request, by a list that costs the server nothing.
    #
    # @return [void]
    def warm_up(deadline_seconds: @configuration.verification_deadline_seconds)
      list_leases(created_after: Time.now + 86_400, limit: 1, deadline_seconds: deadline_seconds)
      nil
    end

    # Ends the connection of this process. The next call makes another.
    #
    # @return [void]
    def close
      old = @lock.synchronize { @connection.tap { @connection = nil } }
      old.close if old&.current?
    end

    # Whose it is and where it leads: what it holds beside that are keys.
    #
    # @return [String]
    def inspect
      "#<#{self.class} of cell #{@configuration.cell_id} at #{@configuration.address}>"
    end

    private

    # The block makes the call that it is given, if it may be made.
    def take_lease(creates, destroys, key, deadline_seconds, &made)
      request = @messages.begin_update(creates, destroys)
      counts = { creates: creates.size, destroys: destroys.size }
      send_begin(:begin_update, request, counts, key, deadline_seconds, &made)
    end

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
      call = Call.new(method, metadata: metadata, tries: @configuration.tries, deadline_seconds: seconds)
      call.run(connection.stub, request)
    rescue Error::Unavailable => error
      raise @credentials.explain(error, @configuration.address, seconds)
    ensure
      payload[:tries] = call.made if call
    end

    # A channel never crosses a fork: its threads stay behind, and what it holds is the parent's.
    def connection
      @lock.synchronize do
        @connection = Connection.new(@configuration, @credentials) unless @connection&.current?
        @connection
      end
    end

    def server_time(headers)
      micros = headers.fetch(SERVER_TIME) do
        raise Error::Misconfigured, "the server does not tell its time (`#{SERVER_TIME}`): use one that is as new as this gem"
      end
      Time.at(0, Integer(micros, 10), :microsecond).utc
    end
  end
end
