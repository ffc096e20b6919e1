# frozen_string_literal: true

require "leasehold/rails"
require "leasehold/queues"
require_relative "relay/captured_claims"
require_relative "relay/delivery"
require_relative "relay/rows"
require_relative "relay/turn"

module Leasehold
  # Relays an outbox: reads the rows that transactions have committed, in the order of Q21, hands them to the server, and
  # acknowledges them. One relay at a time works for an outbox; others wait to take its place, also those of servers and of Python.
  #
  # A relay that dies leaves its batch under way. The next one repeats what is not acknowledged, which changes nothing at the
  # server.
  class Relay
    # The seconds between two looks of a relay that waits for another one.
    WAIT_SECONDS = 1
    # The pauses of a relay that finds nothing to do, and of one whose call has failed, in seconds: the first one, and the
    # longest, to which it grows by doubling.
    IDLE_SECONDS = [0.05, 0.5].freeze
    RETRY_SECONDS = [0.2, 10].freeze
    # The seconds for which a killed thread may take to end.
    KILL_SECONDS = 5
    # The seconds between two rotations of the outbox, and between two looks for done-marks.
    CLEAN_SECONDS = 5
    private_constant :WAIT_SECONDS, :IDLE_SECONDS, :RETRY_SECONDS, :KILL_SECONDS, :CLEAN_SECONDS

    # Raises what it gets in a thread.
    Failure = Struct.new(:thread) do
      # Raises the error.
      def <<(error)
        thread.raise(error)
      end
    end
    private_constant :Failure

    class << self
      # Relays the outboxes of these databases until the process gets one of the signals.
      #
      # @param databases [Array<Class>] a class of each database; by default those of the setting `outbox_databases`, or else
      #   `ActiveRecord::Base`
      # @param stop_within [Numeric] the seconds for which a delivery may go on after a signal
      # @param signals [Array<String>]
      # @raise [Error] if no later try can succeed
      # @return [nil]
      def run(databases = self.databases, stop_within: 25, signals: %w[TERM INT])
        relays = databases.map { |model| new(model) }
        Queues::Signals.during(signals) do |news|
          relays.each { |relay| relay.start(news) }
          reason = news.pop
          raise reason if reason.is_a?(Exception)
        ensure
          relays.map { |relay| Thread.new { relay.stop(within: stop_within) } }.each(&:join)
        end
      end

      # Relays the outboxes of the application's databases while the block runs. The relays outlive the block by the delivery
      # that is under way.
      #
      # @raise [Error] what ends a relay for good, in the block
      # @return [Object] the block's result
      def beside
        caller = Thread.current
        relays = databases.map { |model| new(model) }
        relays.each { |relay| relay.start(Failure.new(caller)) }
        yield
      ensure
        relays&.each(&:stop)
      end

      # @return [Array<Class>] a class of each database that has an outbox
      def databases
        Outbox.databases.presence || [ActiveRecord::Base]
      end
    end

    # @param model [Class] a class of the database
    # @param configuration [Configuration]
    def initialize(model = ActiveRecord::Base, configuration: Leasehold.configuration)
      @rows = Rows.new(model)
      @turn = Turn.new(@rows)
      @model = model
      @configuration = configuration
      @lock = Mutex.new
      @stop = ConditionVariable.new
      @retries = pauses(RETRY_SECONDS)
      @claims = CapturedClaims.new(model) { |seconds| pause(seconds) }
    end

    # Starts the thread.
    #
    # @param news [Thread::Queue] gets an exception after which the relay does not go on
    # @return [self]
    def start(news = Thread::Queue.new)
      @thread = Thread.new do
        Thread.current.report_on_exception = false
        run
      rescue Exception => error # rubocop:disable Lint/RescueException
        news << error
      end
      @thread.name = "leasehold-relay"
      self
    end

    # Ends the thread after the delivery that is under way.
    #
    # @param within [Numeric] seconds to wait; then the thread is killed, and the next relay repeats the delivery
    # @return [void]
    def stop(within: 25)
      @lock.synchronize { (@stopping = true) && @stop.broadcast }
      @thread && (@thread.join(within) || @thread.kill.join(KILL_SECONDS))
    end

    # Relays until {#stop} is called by another thread.
    #
    # @raise [Error] if no later try can succeed
    # @return [void]
    def run
      @delivery = Delivery.new(@configuration)
      until stopping?
        begin
          @turn.hold? ? relay : pause(WAIT_SECONDS)
        rescue Error, ActiveRecord::ActiveRecordError => error
          pass_over(error)
          @turn.forget
          pause(@retries.next)
        end
      end
    ensure
      @delivery&.close
    end

    # Relays what is committed, without a turn and a thread, for tests: no other relay may run meanwhile.
    #
    # @return [Integer] the number of rows
    def drain
      @delivery ||= Delivery.new(@configuration)
      count = 0
      while (batch = @rows.begin)
        relay_batch(batch) do |rows|
          count += rows.size
          false
        end
      end
      count
    end

    # @return [String]
    def inspect
      "#<#{self.class} of #{@model.name}>"
    end

    private

    def stopping?
      @stopping ? true : false
    end

    # Relays while it is this relay's turn.
    def relay
      @relaying = true
      idle = pauses(IDLE_SECONDS)
      while !stopping? && @turn.hold?
        batch = @rows.begin
        relay_batch(batch) { stopping? || !@turn.hold? } if batch
        clean_if_due
        next pause(idle.next) unless batch

        idle = pauses(IDLE_SECONDS)
        @retries = pauses(RETRY_SECONDS)
      end
    ensure
      @relaying = false
      give_way
    end

    # Another relay may be able to call the server. It takes its turn later if this call fails.
    def give_way
      @turn.release
    rescue ActiveRecord::ActiveRecordError
      nil
    end

    # Cleans if it is time, and the relay is not to stop. Rows never wait for it: a failure, such as a right that the relay's role
    # lacks after an update of the outbox, is only published.
    def clean_if_due
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return if stopping? || (@clean_at && now < @clean_at)

      @clean_at = now + CLEAN_SECONDS
      clean
    rescue Error, ActiveRecord::ActiveRecordError => error
      publish(error)
    end

    # Empties what is relayed, and forgets done-marks that no worker needs: some at a time, from the first one again after the last.
    # Further marks are looked at soon.
    def clean
      @rows.rotate
      marks = @rows.marks(@last_mark)
      @last_mark = marks.last
      @rows.forget(@delivery.settled(marks) { beat })
      @clean_at = nil if marks.size == Rows::MAX_MARKS
    end

    # Relays a batch to its end, or until the block returns true.
    #
    # @yieldparam rows [Array<Rows::Row>] rows that are delivered
    def relay_batch(batch)
      loop do
        rows = @rows.read(batch)
        refusals = deliver(rows)
        is_done = @rows.acknowledge(batch, rows.last, refusals)
        break if yield(rows) || is_done
      end
    end

    # A full lane must hold up no claims: they do not need it. During a long delivery no other relay takes its turn.
    #
    # @return [Array<Rows::Refusal>]
    def deliver(rows)
      captured, others = rows.partition { |row| CapturedClaims.row?(row) }
      refusals = begin
        @delivery.run(others) { beat }
      rescue Delivery::FullLane => full
        []
      end
      @claims.run(captured) { beat }
      full ? raise(full) : refusals
    end

    # Says that this relay works. One that was overtaken ends its delivery, which is repeated without a change.
    def beat
      @turn.hold? if @relaying
    end

    # Publishes an error after which a later try may succeed; raises any other.
    #
    # A relay that may not use a queue has another certificate than it should, or lacks an entry of `[[locks.access]]`. The rows
    # are not at fault, so they wait until an operator has changed that.
    def pass_over(error)
      raise error unless error.is_a?(ActiveRecord::ActiveRecordError) || error.is_a?(Error::Denied) || Locks::Reaping.passing?(error)

      publish(error)
    end

    # Publishes an error. Only messages of the gem have no values (V09).
    def publish(error)
      Events.publish(:relay_failed, database: @model.name, error: error.class.name, message: (error.message if error.is_a?(Error)))
    end

    # @param bounds [Array(Numeric, Numeric)]
    # @return [Enumerator] the pauses in seconds
    def pauses(bounds)
      Enumerator.produce(bounds.first) { |pause| [pause * 2, bounds.last].min }
    end

    # Waits, until the relay is to stop.
    def pause(seconds)
      @lock.synchronize { @stop.wait(@lock, seconds * rand(1.0..1.2)) unless stopping? }
    end
  end
end
