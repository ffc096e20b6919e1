# frozen_string_literal: true

require "active_support/notifications"

module Leasehold
  # Publishes ActiveSupport notifications named `EVENT.leasehold`. Payloads contain names of
  # models, counts, ids, codes, flags and errors. They never contain a claimed value, only its hash (V09).
  module Events
    module_function

    # Publishes an event.
    def publish(name, **payload)
      ActiveSupport::Notifications.instrument("#{name}.leasehold", payload)
    end

    # Runs the block and publishes its duration, with the payload that the block completes.
    #
    # @yieldparam payload [Hash]
    def measure(name, **payload, &block)
      ActiveSupport::Notifications.instrument("#{name}.leasehold", payload, &block)
    end
  end
end
