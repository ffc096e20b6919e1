# frozen_string_literal: true

module Leasehold
  # A queue, as fronts and operators see it. Requests of one key are worked in order, one batch at a time (Q07).
  #
  # @example
  #   sheets = Leasehold.queue("sheets")
  #   sheets.submit("7", "recalculate", delay: 60).id
  class RequestQueue
    # @return [String] the parts of the name, joined by a full stop
    attr_reader :name

    # @api private
    # @param calls [Proc] returns the connection of this process
    # @param configuration [Configuration]
    def initialize(name, calls, configuration = Leasehold.configuration)
      @name = Queues::Messages.queue(name)
      @calls = calls
      @configuration = configuration
    end

    # Submits a request. A call without an answer is repeated with the same id, so it makes one request (Q09).
    #
    # @param key [String, Symbol, Integer] the key of the resource that the request is about
    # @param body [String] bytes that the worker gets; at most 64 KiB. A text is sent as UTF-8
    # @param options [Hash{Symbol => Object}]
    # @option options [Symbol] :kind (:update) `:create` for the request that creates the resource: it is taken alone, and
    #   before the updates behind it (Q02)
    # @option options [Integer] :priority (0) 0 to 9; each step moves the request one minute ahead of others (Q12)
    # @option options [Numeric] :delay (0) seconds for which the request is not taken (Q12)
    # @option options [Integer] :max_attempts (25) 1 to 1,000; the request ends in error if the last one fails (Q13)
    # @option options [String] :id a UUID; by default a new UUIDv7. A request of this id that exists already is kept
    # @raise [Error::Invalid, Error::Denied, Error::Unavailable]
    # @return [SubmittedRequest]
    def submit(key, body = "", **options)
      submit_all([{ key: key, body: body, **options }]).first
    end

    # Submits requests: all of them, or none. In a transaction of one of the `outbox_databases`, they are written to its outbox:
    # the server gets them after the COMMIT, and never without it (Q14).
    #
    # @param requests [Array<Hash>] each with the arguments of {#submit} as keys; at most 1,000, whose bodies have at most
    #   4 MiB together
    # @raise [Error::Invalid, Error::Denied, Error::Unavailable]
    # @return [Array<SubmittedRequest>] in the order of the requests
    def submit_all(requests)
      return [] if requests.empty?

      message = Queues::Messages.submit(name, requests)
      outbox = Outbox.of_transaction if @configuration.outbox_databases
      outbox ? outbox.submit(message) : Queues::Messages.submitted(run(:submit, message))
    end

    # Reads the queue.
    #
    # @return [QueueStatus]
    def status
      Queues::Messages.queue_status(run(:get_queue, Queues::Messages.get_queue(name)))
    end

    # Lists requests without their bodies: the `:waiting` or the `:taken` ones of a lane in its order, or the `:settled`
    # ones of the queue, the oldest first. A page of settled ones may have few requests, though more follow.
    #
    # @param list [Symbol] `:waiting`, `:taken` or `:settled`
    # @param key [String, nil] the key of the lane; nil for the settled requests of all lanes
    # @param limit [Integer, nil] the most requests of a page; 100 if nil
    # @param cursor [String, nil] the `cursor` of the page before
    # @return [RequestPage]
    def requests(list, key: nil, limit: nil, cursor: nil)
      Queues::Messages.request_page(run(:list_requests, Queues::Messages.list_requests(name, list, key, limit, cursor)))
    end

    # Lists lanes: those that can be taken, or whose first request is not due, or that are taken or paused.
    #
    # @param list [Symbol] `:ready`, `:delayed`, `:taken` or `:paused`
    # @param limit [Integer, nil] the most lanes of a page; 100 if nil
    # @param cursor [String, nil] the `cursor` of the page before
    # @return [LanePage]
    def lanes(list, limit: nil, cursor: nil)
      Queues::Messages.lane_page(run(:list_lanes, Queues::Messages.list_lanes(name, list, limit, cursor)))
    end

    # Pauses the queue, or one lane of it. What is taken already goes on (Q19). Only administrators may call this.
    #
    # @param key [String, nil] the key of the lane; nil for all lanes
    # @return [nil]
    def pause(key = nil)
      run(:pause, Queues::Messages.pause(name, key, false))
      nil
    end

    # Resumes the queue, or one lane of it. Only administrators may call this.
    #
    # @param key [String, nil] see {#pause}
    # @return [nil]
    def resume(key = nil)
      run(:pause, Queues::Messages.pause(name, key, true))
      nil
    end

    # Sets the most lanes that are taken at a time (Q17). Only administrators may call this.
    #
    # @param limit [Integer, nil] nil for any number
    # @return [nil]
    def limit=(limit)
      run(:set_limit, Queues::Messages.set_limit(name, limit))
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{name}>"
    end

    private

    def run(method, request)
      @calls.call.run(method, request)
    end
  end
end
