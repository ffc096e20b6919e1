# frozen_string_literal: true

require "leasehold/locks"

require_relative "queues/batch"
require_relative "queues/messages"
require_relative "queues/request_queue"
require_relative "queues/signals"
require_relative "queues/taking"
require_relative "queues/worker"

module Leasehold
  # The queues that this process submits requests to and works for. Threads can share the object.
  #
  # A front submits requests, and needs no session. Each queue that {#work} names has a session of its own.
  #
  # @example Submit a request, and work
  #   Leasehold.queue("sheets").submit("7", "recalculate")
  #   Leasehold.work("sheets", credit: 2) { |batch| Sheet.find(batch.key).apply(batch.requests.map(&:body)) }
  class Queues
    include Locks::Connected

    # @param name [String, Symbol] the parts of the queue's name, joined by a full stop
    # @return [RequestQueue]
    def queue(name)
      RequestQueue.new(name, -> { calls }, @configuration)
    end

    # Takes batches of requests and runs the block with each, until the process gets one of the signals. Then it takes
    # nothing more, and lets running blocks end within a time. It gives back what is unfinished, whose attempt does
    # not count (Q11), and returns.
    #
    # A batch is completed when its block returns, and failed if the block raises. The class of the error is logged,
    # and the worker goes on. So is an error that interrupts the taking for a while.
    #
    # @param names [Array<String, Symbol>] the queues, each with threads of its own
    # @param credit [Integer] the number of threads of a queue, which is the most batches held at a time: 1 to 256
    # @param max_requests [Integer] the most requests of one batch: 1 to 100
    # @param stop_within [Numeric] the seconds for which running blocks may go on after a signal. Then their threads are
    #   killed
    # @param signals [Array<String>] the signals that stop the work; none if another thread ends it by an exception
    # @param on_stop [Proc, nil] called when nothing more is taken, before running blocks are waited for
    # @param on_error [Proc, nil] called with each error, and with its {Batch}; nil instead of it for an error of the
    #   taking
    # @yieldparam batch [Batch]
    # @raise [Error] if no later take can succeed
    # @return [nil]
    def work(*names, credit: 1, max_requests: 100, stop_within: 25, signals: %w[TERM INT], on_stop: nil, on_error: nil, &block)
      raise ArgumentError, "`work` has no block: pass one that works on a batch" unless block
      raise ArgumentError, "`work` has no queue: name one" if names.empty?

      options = { credit: credit, max_requests: max_requests, on_error: on_error }
      workers = names.map { |name| worker(name, **options, &block) }
      Signals.during(signals) do |news|
        run(workers, news)
      ensure
        stop(workers, stop_within, on_stop)
      end
    end

    # Returns a worker that is not started, for a program that stops it itself.
    #
    # @param options [Hash{Symbol => Object}] `credit`, `max_requests` and `on_error` of {#work}
    # @return [Worker]
    def worker(name, **options, &block)
      Worker.new(name, @configuration, -> { calls }, **options, &block)
    end

    # Reads a request.
    #
    # @param id [String] a UUID
    # @param body [Boolean] true to read its body too
    # @return [RequestStatus, nil] nil if the request was withdrawn or forgotten, or never was
    def request(id, body: false)
      answer = calls.run(:get_request, Messages.get_request(id, body))
      answer.request && Messages.request(answer.request, (answer.body if body))
    end

    # Withdraws a request that waits. Only administrators may call this.
    #
    # @param id [String] a UUID
    # @return [Symbol, nil] the state in which the call found the request: it is withdrawn if that was `:new`; nil if
    #   there is no such request
    def withdraw(id)
      Messages.found(calls.run(:withdraw, Messages.withdraw(id)))
    end

    # Submits a request again whose last attempt failed, at the end of its lane (Q13). Only administrators may call this.
    #
    # @param id [String] a UUID
    # @return [Symbol, nil] the state in which the call found the request: it is submitted again if that was `:error`;
    #   nil if there is no such request
    def resubmit(id)
      Messages.found(calls.run(:resubmit, Messages.resubmit(id)))
    end

    # Closes the connection. Workers that run have to be stopped before.
    #
    # @return [void]
    def close
      closed = @lock.synchronize { @calls.tap { @calls = nil } }
      closed&.close
    end

    private

    # @param news [Thread::Queue] gets an object when the work has to end: an error that is raised, or a signal
    def run(workers, news)
      workers.each { |worker| worker.start(news) }
      reason = news.pop
      raise reason if reason.is_a?(Exception)
    end

    def stop(workers, stop_within, on_stop)
      workers.each(&:drain)
      on_stop&.call
    ensure
      workers.map { |worker| Thread.new { worker.stop(within: stop_within) } }.each(&:join)
    end
  end
end
