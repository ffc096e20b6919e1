# frozen_string_literal: true

require "rails_helper"

# Runs files of Minitest in processes of their own.
RSpec.describe "leasehold/test_help", :rails do
  # @param tests [String] code of the test class
  # @param suite [String] code before the test class
  # @return [String] what Minitest prints
  def minitest(tests, suite: "", class_methods: "i_suck_and_my_tests_are_order_dependent!")
    Support::CellProcess.run(Support::Cell[1], "127.0.0.1:1", <<~RUBY)
      require "minitest"
      require "active_support"
      require "active_support/test_case"
      require "active_record/fixtures"
      require "leasehold/test_help"
      #{suite}
      class UserTest < ActiveSupport::TestCase
        include ActiveRecord::TestFixtures
        #{class_methods}
        #{tests}
      end
      exit Minitest.run(["--seed", "1"])
    RUBY
  end

  it "replaces the server and the flags until the end of each test of Minitest" do
    printed = minitest(<<~'RUBY')
      def test_1_the_stub_accepts_updates_in_a_transactional_test
        server = stub_claims_server
        User.create!(username: "alice").update!(username: "bob")
        creates, destroys = server.updates.last
        assert_equal %w[bob], creates.map(&:bucket_value)
        assert_equal %w[alice], destroys.map(&:bucket_value)
      end

      def test_2_the_stub_has_the_rules_of_a_server_and_no_claims_of_another_test
        stub_claims_server.hold("bob", type: :USERNAMES)
        assert User.create(username: "alice").persisted?
        assert_equal :taken, User.create(username: "bob").errors.details.dig(:username, 0, :error)
      end

      def test_3_flags_are_switched
        stub_feature_flags(cells_claims_users: false)
        server = stub_claims_server
        User.create!(username: "alice")
        stub_feature_flags(cells_claims_emails: false)
        assert_not User.cells_claims_enabled_for_attribute?(:username)
        assert_empty server.updates
      end

      def test_4_both_are_restored
        assert User.cells_claims_enabled_for_attribute?(:username)
        assert Email.cells_claims_enabled_for_attribute?(:email)
        assert_not User.create(username: "alice").persisted?
        assert_equal 0, User.count
      end
    RUBY

    expect(printed).to include("4 runs, 11 assertions, 0 failures, 0 errors, 0 skips")
  end

  it "gives each test a copy of the suite's server" do
    printed = minitest(<<~RUBY, suite: %(Leasehold::TestHelp.stub_claims_server.hold("bob", type: :USERNAMES)))
      2.times do |number|
        define_method("test_\#{number}") do
          assert User.create(username: "alice").persisted?
          assert_equal 1, stub_claims_server.updates.size
          assert_not User.create(username: "bob").persisted?
        end
      end
    RUBY

    expect(printed).to include("2 runs, 6 assertions, 0 failures, 0 errors, 0 skips")
  end

  it "gives a test of another thread a copy of the suite's server, without the claims of this thread's test" do
    printed = minitest(<<~RUBY, suite: "Leasehold::TestHelp.stub_claims_server")
      def test_both
        assert User.create(username: "alice").persisted?
        other = Thread.new do
          Leasehold::TestHelp::Replacements.begin_test(Object.new)
          User.create(username: "alice").errors.full_messages
        end
        assert_equal [], other.value
      end
    RUBY

    expect(printed).to include("1 runs, 2 assertions, 0 failures, 0 errors, 0 skips")
  end

  # Every test claims the same name, and keeps its claim until the others have claimed the name too.
  tests = <<~'RUBY'
    4.times do |number|
      define_method("test_#{number}") do
        stub_feature_flags(cells_claims_users: false) if number == 3
        assert_equal number != 3, User.cells_claims_enabled_for_attribute?(:username)
        assert User.create(username: "alice").persisted?
        meet
        assert_equal (number == 3 ? 0 : 1), stub_claims_server.updates.size
        assert Leasehold.lock("user.update", 7) { |held| held.held? }
        assert_equal Thread.new { Leasehold.client.class }.value, Leasehold::TestHelp::Client
      end
    end
  RUBY

  # Rails 7.0 and newer run tests in parallel only from 50 tests on, unless the threshold is lower.
  let(:always) { Support::RailsVersions.since?("7.0") ? ", threshold: 0" : "" }

  it "serves tests that run in parallel threads" do
    suite = <<~RUBY
      Leasehold::TestHelp.stub_claims_server
      MEETING = Queue.new
      module Meeting
        def meet
          MEETING << true
          # A test that has failed does not come.
          Timeout.timeout(60) { sleep 0.001 until MEETING.size >= 4 }
        end
      end
    RUBY
    # Since Rails 7.2, the transactional tests of all threads share one connection and its stack of transactions
    # (connection_adapters/abstract/connection_pool.rb:328).
    printed = minitest(tests, suite: suite, class_methods: <<~RUBY)
      parallelize(workers: 4, with: :threads#{always})
      self.use_transactional_tests = false
      include Meeting
    RUBY

    expect(printed).to include("4 runs, 20 assertions, 0 failures, 0 errors, 0 skips")
  end

  # Every test takes the same lock. Its other thread sees the lock of this test, not of the others.
  it "gives parallel tests locks of their own, which their threads see" do
    printed = minitest(<<~'RUBY', suite: "Leasehold::TestHelp.stub_claims_server", class_methods: <<~SETTINGS)
      4.times do |number|
        define_method("test_#{number}") do
          held = stub_claims_server.hold_lock("user.update", 7)
          MEETING << true
          Timeout.timeout(60) { sleep 0.001 until MEETING.size >= 4 }
          waiting = Thread.new { Leasehold.lock("user.update", 7, wait: 60) { |own| own.fence > held.fence } }
          Timeout.timeout(60) { sleep 0.001 until Leasehold.locks.get("user.update", 7).waiting == 1 }
          held.release
          assert waiting.value
          assert_equal :free, Leasehold.locks.get("user.update", 7).state
        end
      end
    RUBY
      MEETING = Queue.new
      parallelize(workers: 4, with: :threads#{always})
      self.use_transactional_tests = false
    SETTINGS

    expect(printed).to include("4 runs, 8 assertions, 0 failures, 0 errors, 0 skips")
  end

  it "serves tests that run in parallel processes" do
    suite = <<~RUBY
      Leasehold::TestHelp.stub_claims_server.hold_lock("user.update", 8)
      Leasehold.client.warm_up
    RUBY
    printed = minitest(tests, suite: suite, class_methods: "parallelize(workers: 2#{always})\ndef meet; end")

    expect(printed).to include("4 runs, 20 assertions, 0 failures, 0 errors, 0 skips")
  end
end
