# frozen_string_literal: true

Leasehold.configure do |config|
  config.address = ENV.fetch("LEASEHOLD_ADDRESS", "127.0.0.1:7171")
  config.cell_id = Integer(ENV.fetch("LEASEHOLD_CELL_ID", "1"))
  config.tls = { insecure: true }
end
