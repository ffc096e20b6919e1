# frozen_string_literal: true

require "securerandom"

module Leasehold
  class Queues
    # Converts between the gem's values and the messages of queues.
    module Messages
      Wire = Contract::Leasehold::Queues::V1
      UUID = /\A\h{8}-?\h{4}-?\h{4}-?\h{4}-?\h{12}\z/
      # The members of a request to submit, and their defaults.
      DEFAULTS = { body: "", kind: :update, priority: 0, delay: 0, max_attempts: 25, id: nil }.freeze
      KINDS = { create: :CREATE, update: :UPDATE }.freeze
      OUTCOMES = { completed: :COMPLETED, failed: :FAILED, given_back: :GIVEN_BACK }.freeze
      REQUEST_LISTS = { waiting: :WAITING, taken: :TAKEN, settled: :SETTLED }.freeze
      LANE_LISTS = { ready: :READY, delayed: :DELAYED, taken: :TAKEN, paused: :PAUSED }.freeze
      private_constant :UUID, :DEFAULTS, :KINDS, :OUTCOMES, :REQUEST_LISTS, :LANE_LISTS

      extend Locks::Conversion

      class << self
        # @raise [Error::Invalid] if the name is no text
        # @return [String]
        def queue(name)
          encode("queue") { text(name) }
        end

        # @raise [Error::Invalid] if the key is no text
        # @return [String]
        def key(key)
          encode("key") { text(key) }
        end

        # @param requests [Array<Hash>] see {RequestQueue#submit_all}
        # @raise [Error::Invalid]
        def submit(queue, requests)
          encode("queue") { Wire::SubmitRequest.new(queue: queue, requests: requests.map { |request| new_request(request) }) }
        end

        # @return [Array<SubmittedRequest>]
        def submitted(response)
          response.requests.map { |request| SubmittedRequest.new(id: uuid(request.request_id), is_new: request.is_new) }
        end

        # @param held_fences [Array<Integer>] the fences of the batches that the worker knows
        # @raise [Error::Invalid]
        def take(session_id, queue, credit, max_requests, held_fences)
          encode("credit` or `max_requests") do
            Wire::TakeRequest.new(
              session_id: session_id, queue: queue, credit: credit, max_requests: max_requests, held_fences: held_fences
            )
          end
        end

        # @param outcome [Symbol] `:completed`, `:failed` or `:given_back`
        # @param retry_after [Numeric, nil] seconds until the next attempt after a failure; nil for the server's backoff
        # @raise [Error::Invalid]
        def settle(session_id, queue, key, fence, outcome, retry_after = nil)
          encode("retry_after") do
            Wire::SettleRequest.new(
              session_id: session_id, queue: queue, key: key, fence: fence, outcome: OUTCOMES.fetch(outcome),
              retry_micros: retry_after && micros(retry_after)
            )
          end
        end

        # @raise [Error::Invalid]
        def note_progress(session_id, queue, key, fence, progress)
          encode("progress") do
            Wire::NoteProgressRequest.new(
              session_id: session_id, queue: queue, key: key, fence: fence, progress: bytes(progress)
            )
          end
        end

        def get_request(id, body)
          Wire::GetRequestRequest.new(request_id: id_of(id), with_body: body ? true : false)
        end

        def withdraw(id)
          Wire::WithdrawRequest.new(request_id: id_of(id))
        end

        def resubmit(id)
          Wire::ResubmitRequest.new(request_id: id_of(id))
        end

        def get_queue(queue)
          Wire::GetQueueRequest.new(queue: queue)
        end

        def pause(queue, key, resume)
          encode("key") { Wire::PauseRequest.new(queue: queue, key: key.nil? ? "" : text(key), resume: resume) }
        end

        def set_limit(queue, limit)
          encode("limit") { Wire::SetLimitRequest.new(queue: queue, limit: limit || 0) }
        end

        # @raise [Error::Invalid]
        def list_requests(queue, list, key, limit, cursor)
          list = member(REQUEST_LISTS, "list", list)
          encode("key`, `limit` or `cursor") do
            Wire::ListRequestsRequest.new(
              queue: queue, list: list, key: key.nil? ? "" : text(key), limit: limit || 0, after: place(Wire::RequestPlace, cursor)
            )
          end
        end

        # @raise [Error::Invalid]
        def list_lanes(queue, list, limit, cursor)
          list = member(LANE_LISTS, "list", list)
          encode("limit` or `cursor") do
            Wire::ListLanesRequest.new(queue: queue, list: list, limit: limit || 0, after: place(Wire::LanePlace, cursor))
          end
        end

        # Returns a request for the first page of the lanes of a queue that a session holds. The list is ordered by
        # session and fence, so the place has some key.
        def list_taken(queue, session_id)
          first = Wire::LanePlace.new(queue: queue, session_id: session_id, key: "-")
          Wire::ListLanesRequest.new(queue: queue, list: :TAKEN, limit: 1_000, after: first)
        end

        # @return [Symbol, nil] the state in which a call found its request; nil if there is none
        def found(response)
          symbol(response.found) unless response.found == :REQUEST_STATE_UNSPECIFIED
        end

        # @return [Array<TakenRequest>]
        def taken(requests)
          requests.map { |taken| TakenRequest.new(id: uuid(taken.request_id), attempt: taken.attempt, body: taken.body) }
        end

        # @return [Symbol]
        def kind(kind)
          symbol(kind)
        end

        # @return [QueueStatus]
        def queue_status(response)
          limit = response.limit unless response.limit.zero?
          QueueStatus.new(paused: response.is_paused, limit: limit, taken: response.taken)
        end

        # @return [RequestPage]
        def request_page(response)
          RequestPage.new(requests: response.requests.map { |request| request(request) }, cursor: cursor(response.next))
        end

        # @param body [String, nil]
        # @return [RequestStatus]
        def request(request, body = nil)
          RequestStatus.new(
            id: uuid(request.request_id), queue: request.queue, key: request.key, number: request.number,
            kind: symbol(request.kind), priority: request.priority, state: symbol(request.state),
            not_before: time(request.not_before), attempts: request.attempts, max_attempts: request.max_attempts,
            body_bytes: request.body_bytes, submitted_at: time(request.submitted_at), updated_at: time(request.updated_at),
            body: body
          )
        end

        # @return [LanePage]
        def lane_page(response)
          LanePage.new(lanes: response.lanes.map { |lane| lane(lane) }, cursor: cursor(response.next))
        end

        private

        def lane(lane)
          LaneStatus.new(
            queue: lane.queue, key: lane.key, paused: lane.is_paused, waiting: lane.waiting, not_before: time(lane.not_before),
            session_id: uuid(lane.session_id), fence: (lane.fence unless lane.fence.zero?), taken_at: time(lane.taken_at),
            updated_at: time(lane.updated_at)
          )
        end

        def new_request(request)
          key, body, kind, priority, delay, max_attempts, id = members(request)
          kind = member(KINDS, "kind", kind)
          id = id.nil? ? new_id : id_of(id)
          encode("key`, `body`, `priority`, `delay` or `max_attempts") do
            Wire::NewRequest.new(
              request_id: id, key: text(key), kind: kind, priority: priority, delay_micros: micros(delay),
              max_attempts: max_attempts, body: bytes(body)
            )
          end
        end

        # Returns a UUIDv7: the milliseconds since 1970 in 48 bits, the version 7, the variant `10`, and random bits (RFC 9562,
        # section 5.7). So a store finds requests of one time side by side, and forgets them together. Ruby has its own from 3.3 on.
        #
        # @return [String] 16 bytes
        def new_id
          millis = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
          after_version, after_variant, rest = SecureRandom.random_bytes(10).unpack("nna6")
          [millis >> 16, millis & 0xffff, 0x7000 | (after_version & 0xfff), 0x8000 | (after_variant & 0x3fff), rest].pack("Nnnna6")
        end

        def members(request)
          unknown = request.keys - DEFAULTS.keys - [:key]
          raise ArgumentError, "a request has no `#{unknown.first}`: pass the arguments of `submit`" if unknown.any?

          DEFAULTS.merge(request).values_at(:key, *DEFAULTS.keys)
        end

        def member(members, argument, name)
          members.fetch(name) do
            text = "`#{argument}` is unknown: pass #{members.keys.map { |known| "`:#{known}`" }.join(", ")}"
            raise Error::Invalid.new(text, code: "INVALID_UPDATE"), cause: nil
          end
        end

        # Returns the bytes of a text in UTF-8, or of bytes as they are.
        def bytes(body)
          raise TypeError unless body.is_a?(String)

          (body.encoding == Encoding::BINARY ? body : body.encode(Encoding::UTF_8)).b
        end

        def id_of(id)
          return [id.delete("-")].pack("H*") if id.is_a?(String) && UUID.match?(id)

          raise Error::Invalid.new("the id of a request is no UUID: pass the `id` of a submitted request", code: "INVALID_UPDATE")
        end

        def cursor(place)
          place && [place.class.encode(place)].pack("m0")
        end

        def place(type, cursor)
          cursor && type.decode(cursor.unpack1("m0"))
        rescue Google::Protobuf::ParseError
          raise ArgumentError
        end
      end
    end
  end
end
