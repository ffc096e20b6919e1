# frozen_string_literal: true

module Support
  # Runs the fibers of a thread while others wait for a socket, a lock or a time (Ruby 3.1, Fiber::Scheduler). Servers
  # with a fiber for each request, such as Falcon, have a scheduler like this one.
  class FiberScheduler
    def initialize
      @readable = {}
      @writable = {}
      @deadlines = {}
      @blocked = Set.new
      @unblocked = Thread::Queue.new
      @wakeup, @waker = IO.pipe
    end

    def fiber(&block)
      Fiber.new(blocking: false, &block).tap(&:resume)
    end

    # @return [Integer, false] the events that happened; false after the timeout
    def io_wait(io, events, timeout)
      @readable[io] = Fiber.current unless (events & IO::READABLE).zero?
      @writable[io] = Fiber.current unless (events & IO::WRITABLE).zero?
      wait(timeout)
    ensure
      @readable.delete(io)
      @writable.delete(io)
    end

    # @return [Boolean] false after the timeout
    def block(_blocker, timeout = nil)
      @blocked << Fiber.current
      wait(timeout)
    ensure
      @blocked.delete(Fiber.current)
    end

    # Other threads call this method too.
    def unblock(_blocker, fiber)
      @unblocked << fiber
      @waker.write_nonblock(".", exception: false)
    end

    def kernel_sleep(seconds = nil)
      block(:sleep, seconds)
    end

    # Ruby calls this method at the end of the thread: runs the fibers to their ends.
    def close
      step until [@readable, @writable, @deadlines, @blocked].all?(&:empty?)
      [@wakeup, @waker].each(&:close)
    end

    private

    def wait(timeout)
      @deadlines[Fiber.current] = now + timeout if timeout
      Fiber.yield
    ensure
      @deadlines.delete(Fiber.current)
    end

    def step
      seconds = [@deadlines.each_value.min&.-(now), 0].compact.max if @deadlines.any?
      readable, writable = IO.select([*@readable.keys, @wakeup], @writable.keys, nil, seconds) || [[], []]
      @wakeup.read_nonblock(1024, exception: false) if readable.delete(@wakeup)
      events = Hash.new(0)
      readable.each { |io| events[@readable[io]] |= IO::READABLE }
      writable.each { |io| events[@writable[io]] |= IO::WRITABLE }
      resume(events)
    end

    # @param events [Hash{Fiber => Integer}]
    def resume(events)
      events.each { |fiber, happened| fiber.resume(happened) }
      @unblocked.size.times { @unblocked.pop.then { |fiber| fiber.resume(true) if @blocked.include?(fiber) } }
      late = @deadlines.select { |_, deadline| deadline <= now }.keys
      late.each { |fiber| fiber.resume(false) if @deadlines.key?(fiber) }
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
