# frozen_string_literal: true

require "rails_helper"

# Runs a file of Minitest in a process of its own.
RSpec.describe "leasehold/test_help", :rails do
  it "replaces the server and the flags until the end of each test of Minitest" do
    printed = Support::CellProcess.run(Support::Cell[1], "127.0.0.1:1", <<~'RUBY')
      require "minitest"
      require "active_support"
      require "active_support/test_case"
      require "active_record/fixtures"
      require "leasehold/test_help"

      class UserTest < ActiveSupport::TestCase
        include ActiveRecord::TestFixtures
        i_suck_and_my_tests_are_order_dependent!

        def test_1_the_stub_accepts_updates_in_a_transactional_test
          server = stub_claims_server
          User.create!(username: "alice").update!(username: "bob")
          creates, destroys = server.updates.last
          assert_equal %w[bob], creates.map(&:bucket_value)
          assert_equal %w[alice], destroys.map(&:bucket_value)
        end

        def test_2_flags_are_switched
          stub_feature_flags(cells_claims_users: false)
          server = stub_claims_server
          User.create!(username: "alice")
          stub_feature_flags(cells_claims_emails: false)
          assert_not User.cells_claims_enabled_for_attribute?(:username)
          assert_empty server.updates
        end

        def test_3_both_are_restored
          assert User.cells_claims_enabled_for_attribute?(:username)
          assert Email.cells_claims_enabled_for_attribute?(:email)
          assert_not User.create(username: "alice").persisted?
          assert_equal 0, User.count
        end
      end
      exit Minitest.run(["--seed", "1"])
    RUBY

    expect(printed).to include("3 runs, 9 assertions, 0 failures, 0 errors, 0 skips")
  end
end
