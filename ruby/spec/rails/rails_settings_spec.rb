# frozen_string_literal: true

require "rails_helper"

# Settings of Rails under which claims work as under the default ones.
RSpec.describe "claims under a setting of Rails", :rails do
  describe "that refuses to load associations lazily" do
    let(:model) do
      stub_const("Letter", Class.new(ApplicationRecord) { self.table_name = "emails" })
      stub_const("Strict", Class.new(ApplicationRecord) do
        self.table_name = "users"
        self.strict_loading_by_default = true
        include Cells::Claimable
        cells_claims_attribute :username, type: :USERNAMES, feature_flag: :cells_claims_users, if: ->(user) { user.username != "root" }
        cells_claims_metadata subject_type: :USER, subject_key: :id
        has_many :letters, foreign_key: :user_id, inverse_of: false
        accepts_nested_attributes_for :letters, allow_destroy: true
      end)
    end

    it "follow creates, updates and destroys, and load nothing" do
      model.create!(username: "alice", letters_attributes: [{ email: "a@example.com" }])
      user = model.find_by!(username: "alice")
      user.update!(username: "root")
      expect(claimed(model, :username)).to be_empty
      user.update!(username: "bob")
      expect(claimed(model, :username)).to eq(["bob"])
      as_cell(2) { User.create!(username: "taken") }
      expect(user.update(username: "taken")).to be(false)
      expect(verify(model)).to include(failed: 0, missing: 0)
      user.destroy!
      expect(claimed(model, :username)).to be_empty
    end

    def verify(model)
      Leasehold::Verifier.new(model).run
    end
  end

  describe "that gives each fiber a connection of its own", if: Support::RailsVersions.since?("7.0") do
    around do |example|
      before = ActiveSupport::IsolatedExecutionState.isolation_level
      ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
      example.run
    ensure
      ActiveSupport::IsolatedExecutionState.isolation_level = before
    end

    it "belong to the transaction of their fiber" do
      fibers = %w[alice bob].map do |name|
        Fiber.new do
          User.transaction do
            User.create!(username: name)
            Fiber.yield
            raise ActiveRecord::Rollback if name == "bob"
          end
        ensure
          User.connection_pool.release_connection
        end
      end
      seen = calls { 2.times { fibers.each(&:resume) } }

      expect(seen.map { |call| call[:call] }).to eq(%i[begin_update commit_update])
      expect(claimed(User, :username)).to eq(["alice"])
    end

    # Creates users at once, each in a fiber of one thread. Statements of PostgreSQL switch to another fiber.
    #
    # @return [Integer] the largest number of transactions that were open at once
    def create_in_fibers(names)
      open = most = 0
      Thread.new do
        Fiber.set_scheduler(Support::FiberScheduler.new)
        names.each do |name|
          Fiber.schedule do
            User.transaction do
              most = [most, open += 1].max
              User.create!(username: name)
              User.connection.execute("SELECT pg_sleep(0.1)")
              open -= 1
              raise ActiveRecord::Rollback if name.start_with?("undone")
            end
          ensure
            User.connection_pool.release_connection
          end
        end
      end.join
      most
    end

    it "are claimed by fibers that a scheduler switches, as in Falcon" do
      expect(create_in_fibers(%w[alice undone-1 bob undone-2])).to be > 1
      expect(claimed(User, :username)).to eq(%w[alice bob])
      expect(User.pluck(:username)).to match_array(%w[alice bob])
      expect(outstanding_leases + lease_rows).to be_empty
    end
  end
end
