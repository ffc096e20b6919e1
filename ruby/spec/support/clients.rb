# frozen_string_literal: true

module Support
  # Creates clients for test servers.
  module Clients
    module_function

    # Creates a client of cell 1 by default. The deadline is long, because the test machine may be
    # busy.
    def client_of(address, **settings)
      configuration = Leasehold::Configuration.new
      defaults = { address: address, cell_id: 1, tls: { insecure: true }, request_deadline_seconds: 30 }
      defaults.merge(settings).each { |name, value| configuration.public_send("#{name}=", value) }
      Leasehold::Client.new(configuration)
    end
  end
end
