# frozen_string_literal: true

# Helpers and shared examples for specs of models with claims. Add `require "leasehold/rspec"` to
# `rails_helper.rb`.

require "leasehold/test_help"
require_relative "rspec/claims_helpers"
require_relative "rspec/shared_examples"

RSpec.configure do |config|
  config.include Leasehold::TestHelp
  config.include Leasehold::RSpec::ClaimsHelpers
  config.after { restore_leasehold }
end
