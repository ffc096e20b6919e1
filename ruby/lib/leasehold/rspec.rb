# frozen_string_literal: true

# Helpers and shared examples for specs of models with claims. Add `require "leasehold/rspec"` to
# `rails_helper.rb`.

require "leasehold/test_help"
require_relative "rspec/claims_helpers"
require_relative "rspec/shared_examples"

RSpec.configure do |config|
  config.include Leasehold::TestHelp
  config.include Leasehold::RSpec::ClaimsHelpers
  config.prepend_before { Leasehold::TestHelp::Replacements.begin_test(self) }
  config.append_after { restore_leasehold }
  # Runs after each outermost group of examples, and removes the replacements that its `before_all` made.
  config.after(:context) { Leasehold::TestHelp::Replacements.remove(:group) }
end
