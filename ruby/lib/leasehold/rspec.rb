# frozen_string_literal: true

# Shared examples for models that claim: `require "leasehold/rspec"` in `rails_helper.rb`.

require "leasehold/rails"
require_relative "rspec/claims_helpers"
require_relative "rspec/shared_examples"

# Tests run in a transaction that is never committed; what they commit is a savepoint within.
Leasehold.configuration.transactional_tests = true

RSpec.configure { |config| config.include Leasehold::RSpec::ClaimsHelpers }
