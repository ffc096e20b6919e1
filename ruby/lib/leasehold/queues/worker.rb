# frozen_string_literal: true

module Leasehold
  # The threads of this process that work for one queue. {Queues#work} runs workers until a signal comes.
  class Worker
    # Errors of a block after which its thread goes on.
    SURVIVED = [StandardError, ScriptError, SystemStackError].freeze
    # The time for a killed thread to run its `ensure` blocks, and to give its batch back.
    KILL_SECONDS = 5
    # The variable of a thread with the batch that it works on.
    BATCH = :leasehold_batch
    private_constant :SURVIVED, :KILL_SECONDS, :BATCH

    # @api private
    # @param calls [Proc] returns the connection of this process
    # @see Queues#work
    def initialize(name, configuration, calls, credit: 1, max_requests: 100, on_error: nil, &block)
      raise ArgumentError, "`credit` is not from 1 to 256: pass the number of threads" unless (1..256).cover?(credit)

      @queue = Queues::Messages.queue(name)
      @credit = credit
      @logger = configuration.logger
      @on_error = on_error
      @block = block
      @taking = Queues::Taking.new(@queue, configuration, calls, credit, max_requests)
    end

    # Starts the threads.
    #
    # @param news [Thread::Queue] gets an exception after which the worker does not go on
    # @return [self]
    def start(news = Thread::Queue.new)
      @threads = Array.new(@credit) { thread("work", news) { work } }
      @taker = thread("take", news) { @taking.run { |error| report("taking from", error, nil) } }
      self
    end

    # Takes nothing more, and gives back what no thread works on. Work that is under way goes on.
    #
    # @return [void]
    def drain
      return if stopping? || @taker.nil?

      @taker.kill.join
      @stopping = true
      @taking.give_back_rest
    end

    # Takes nothing more. Waits for the threads, then kills those that still work, which gives their batches back. Ends the
    # session.
    #
    # @param within [Numeric] seconds to wait
    # @return [void]
    def stop(within: 25)
      return unless @taker

      drain
      await(within)
      @threads.each(&:kill)
      await(KILL_SECONDS)
      # A thread that C code keeps from ending still works. This process ends or goes on without it.
      @threads.select(&:alive?).each { |thread| thread.thread_variable_get(BATCH)&.abandon }
      @taking.close
    end

    # Returns true once the worker takes nothing more: work that goes on should come to its end.
    def stopping?
      @stopping ? true : false
    end

    # @return [String]
    def inspect
      "#<#{self.class} of #{@queue}>"
    end

    private

    # An exception that ends a thread may quote anything, so Ruby must not print it (Q22).
    def thread(name, news)
      thread = Thread.new do
        Thread.current.report_on_exception = false
        yield
      rescue Exception => error # rubocop:disable Lint/RescueException
        news << error
      end
      thread.tap { thread.name = "leasehold-#{name}" }
    end

    def work
      while (batch = @taking.batches.pop)
        work_on(batch)
      end
    end

    def work_on(batch)
      Thread.current.thread_variable_set(BATCH, batch)
      batch.use(&@block)
    rescue *SURVIVED => error
      report("the work on", error, batch)
    ensure
      Thread.current.thread_variable_set(BATCH, nil)
    end

    def await(seconds)
      ends_at = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      @threads.each { |thread| thread.join([ends_at - Process.clock_gettime(Process::CLOCK_MONOTONIC), 0].max) }
    end

    # The message of an error may contain a key or a body, so only its class is logged (Q22).
    def report(action, error, batch)
      @logger.warn("leasehold: #{action} the queue `#{@queue}` raised #{error.class}")
      @on_error&.call(error, batch)
    rescue StandardError => failure
      @logger.error("leasehold: `on_error` raised #{failure.class}")
    end
  end
end
