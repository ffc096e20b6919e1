# frozen_string_literal: true

Leasehold.configure do |config|
  config.address = ENV.fetch("LEASEHOLD_ADDRESS", "127.0.0.1:7171")
  config.global_feature_flag = :cells_unique_claims
  # The server answers late on a busy machine. An example that awaits a deadline sets one.
  config.request_deadline_seconds = 30
  config.cell_id = Integer(ENV.fetch("LEASEHOLD_CELL_ID", "1"))
  config.tls = if ENV["LEASEHOLD_CA"]
                 { ca: ENV["LEASEHOLD_CA"], certificate: ENV["LEASEHOLD_CERT"], key: ENV["LEASEHOLD_KEY"] }
               else
                 { insecure: true }
               end
end
