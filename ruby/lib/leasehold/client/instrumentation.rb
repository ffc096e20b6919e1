# frozen_string_literal: true

module Leasehold
  class Client
    # Publishes an ActiveSupport notification for each call, if ActiveSupport is loaded:
    # `begin_update.leasehold` and so on. Payloads contain the number of tries, the outcome's code
    # and numbers of claims, never a claimed value (V09).
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
      rescue Error => error
        payload[:code] = error.code
        raise
      end
    end
  end
end
