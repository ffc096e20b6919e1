# frozen_string_literal: true

module Leasehold
  class Relay
    # Hands rows of an outbox to the server. A repeated delivery changes nothing: a request has its id from its row (Q09), and a
    # settle its fence (Q10).
    class Delivery
      OUTCOMES = { "complete" => :completed, "fail" => :failed, "give_back" => :given_back }.freeze
      # The most requests of one call.
      MAX_REQUESTS = 1_000
      # The limit of requests that wait in a lane.
      LANE_LIMIT = "waiting_per_lane"
      private_constant :OUTCOMES, :MAX_REQUESTS, :LANE_LIMIT
      # Raised if a lane has no room for a request. It has later.
      FullLane = Class.new(Error::Overloaded)

      # @param configuration [Configuration]
      def initialize(configuration)
        @calls = Locks::Calls.new(configuration, Client::Credentials.load(configuration.tls))
      end

      # Delivers rows, and yields before each call. Rows of one queue keep their order; that of different queues means nothing.
      #
      # @param rows [Array<Rows::Row>]
      # @raise [FullLane] after the delivery of all rows but requests of that queue: a settle may be what makes room in it
      # @raise [Error] if rows may not have been delivered
      # @return [Array<Rows::Refusal>] the rows that the server has refused for good
      def run(rows)
        submits, settles = rows.partition { |row| row.operation == "submit" }
        full = nil
        refusals = submits.group_by(&:queue).flat_map do |queue, of_queue|
          yield
          submit_all(queue, of_queue)
        rescue FullLane => full
          []
        end
        late = settles.filter_map do |row|
          yield
          settle(row) unless row.operation == "pass"
        end
        refusals.concat(late)
        full ? raise(full) : refusals
      end

      # Returns the requests that no worker gets any more: the server has them as complete, or has forgotten them. A caller that
      # may not read requests forgets none. Yields before each call.
      #
      # @param ids [Array<String>]
      # @raise [Error] if a later try may succeed
      # @return [Array<String>]
      def settled(ids)
        ids.select do |id|
          yield
          settled?(@calls.run(:get_request, Queues::Messages.get_request(id, false)).request)
        end
      rescue Error => error
        raise if error.temporary?

        []
      end

      # Closes the connection.
      #
      # @return [void]
      def close
        @calls.close
      end

      private

      def settled?(request)
        request.nil? || Queues::Messages.request(request).state == :complete
      end

      def submit_all(queue, rows)
        rows.each_slice(MAX_REQUESTS).flat_map { |slice| submit(queue, slice) }
      end

      # If the server refuses requests for good, all others are delivered. The outbox itself refuses what is malformed or too
      # large, so such a refusal is rare: an id that was used for another request. A lane that is full has room later.
      #
      # @return [Array<Rows::Refusal>]
      def submit(queue, rows)
        @calls.run(:submit, Queues::Messages.submit(queue, rows.map { |row| request(row) }))
        []
      rescue Error::Invalid => error
        raise FullLane.new(error.message, code: error.code) if error.metadata["limit"] == LANE_LIMIT
        return rows.flat_map { |row| submit(queue, [row]) } unless rows.one?

        Events.publish(:request_refused, queue: queue, request: rows.first.request_id, code: error.code)
        [rows.first.refused(error.code)]
      end

      def request(row)
        {
          key: row.key, body: row.body.b, kind: row.kind.to_sym, priority: row.priority, delay: row.delay,
          max_attempts: row.max_attempts, id: row.request_id
        }
      end

      # A batch whose session or fence has passed is another worker's: the settle comes too late.
      #
      # @return [Rows::Refusal, nil]
      def settle(row)
        # An acknowledged row is gone, so one that this version does not know must wait.
        outcome = OUTCOMES.fetch(row.operation) { raise Error::Misconfigured, "the outbox is newer than the gem: update the gem" }
        session_id = [row.session_id.delete("-")].pack("H*")
        @calls.run(:settle, Queues::Messages.settle(session_id, row.queue, row.key, row.fence, outcome, row.retry_after))
        nil
      rescue Error::LockLost, Error::NotFound, Error::NotOwner, Error::Invalid => error
        Events.publish(:settle_refused, queue: row.queue, code: error.code)
        row.refused(error.code)
      end
    end
  end
end
