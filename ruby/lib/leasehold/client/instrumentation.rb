# frozen_string_literal: true

module Leasehold
  class Client
    # Events for ActiveSupport::Notifications, where that is loaded: `begin_update.leasehold` and so on, with the tries
    # that were made, the outcome's code and numbers of claims. No value of a claim is in them.
    module Instrumentation
      module_function

      def measure(method, **payload, &block)
        return observe(payload, &block) unless defined?(ActiveSupport::Notifications)

        ActiveSupport::Notifications.instrument("#{method}.leasehold", payload) { observe(payload, &block) }
      end

      def observe(payload)
        payload[:tries] = 0
        result = yield payload
        payload[:code] = "OK"
        result
      rescue Error => e
        payload[:code] = e.code
        raise
      end
    end
  end
end
