# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))

# Silences gRPC's log: the specs examine errors instead.
ENV["GRPC_VERBOSITY"] ||= "NONE"

require "leasehold"

Dir[File.join(__dir__, "support/*.rb")].sort.each { |path| require path }

Support::InstalledExtension.check

RSpec.configure do |config|
  config.disable_monkey_patching!
  config.expect_with(:rspec) { |expectations| expectations.include_chain_clauses_in_custom_matcher_descriptions = true }
  config.mock_with(:rspec) { |mocks| mocks.verify_partial_doubles = true }
  config.warnings = false
  config.order = :random
  config.include Support::Waiting
  config.include Support::Claims
  config.include Support::Clients

  Kernel.srand config.seed
end
