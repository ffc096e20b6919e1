# frozen_string_literal: true

# Helpers and shared examples for specs of models with claims. Add `require "leasehold/rspec"` to
# `rails_helper.rb`.

require "leasehold/rails"
require_relative "rspec/claims_helpers"
require_relative "rspec/shared_examples"

# Each example runs in a transaction that is never committed; a COMMIT inside it is the release of a
# savepoint.
Leasehold.configuration.transactional_tests = true

RSpec.configure { |config| config.include Leasehold::RSpec::ClaimsHelpers }
