# frozen_string_literal: true

module Leasehold
  class Queues
    # Tells signals of this process to a thread that waits.
    module Signals
      module_function

      # Runs the block, and restores the handlers of the signals after it.
      #
      # @param names [Array<String>]
      # @yieldparam news [Thread::Queue] gets the name of each signal. A handler may use it, but no Mutex (Ruby's
      #   doc/signals.rdoc)
      # @return [nil]
      def during(names)
        news = Thread::Queue.new
        former = names.to_h { |name| [name, Signal.trap(name) { news << name }] }
        yield news
        nil
      ensure
        # The handler is nil if it was not set by Ruby, so Ruby can't restore it.
        former&.each { |name, handler| Signal.trap(name, handler || "DEFAULT") }
      end
    end
  end
end
