# frozen_string_literal: true

module Support
  # Clients of servers that run here.
  module Clients
    module_function

    # A client of cell 1, unless told otherwise; patient, since the machine is busy. Closed when the example ends.
    def client_of(address, **settings)
      configuration = Leasehold::Configuration.new
      defaults = { address: address, cell_id: 1, tls: { insecure: true }, request_deadline_seconds: 5 }
      defaults.merge(settings).each { |name, value| configuration.public_send("#{name}=", value) }
      Leasehold::Client.new(configuration)
    end
  end
end
