# frozen_string_literal: true

require "active_support/notifications"

module Leasehold
  # What the gem tells of itself: ActiveSupport notifications named `begin.leasehold` and so on. They carry counts,
  # lease ids and codes, never a value that is claimed (V09).
  module Events
    module_function

    # Tells that something has happened.
    def publish(name, **payload)
      ActiveSupport::Notifications.instrument("#{name}.leasehold", payload)
    end

    # Tells how long the block took, and what it put into the payload.
    #
    # @yieldparam payload [Hash]
    def measure(name, **payload, &block)
      ActiveSupport::Notifications.instrument("#{name}.leasehold", payload, &block)
    end
  end
end
