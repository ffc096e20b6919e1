# frozen_string_literal: true

require "rails_helper"

# From Rails 7.2 on, a query returns its connection to the pool at once. Only `Model.connection` takes a
# connection that the thread keeps until the end of its request.
RSpec.describe "connections", :rails, if: Support::RailsVersions.since?("7.2") do
  before do
    stub_const("Plain", Class.new(ApplicationRecord) { self.table_name = "users" })
    User.create!(username: "alice")
    ActiveRecord.permanent_connection_checkout = :disallowed
  end

  after { ActiveRecord.permanent_connection_checkout = true }

  # Runs the block in a new thread, which has no connection.
  #
  # @return [Boolean] true if the thread still has a connection after the block
  def kept_by_thread
    Thread.new do
      yield
      [User, Key].any? { |model| model.connection_pool.active_connection? }
    end.value
  end

  {
    "the save of a model without claims" => -> { Plain.create!(username: "x").update!(username: "y") },
    "a save" => -> { User.create!(username: "bob").update!(username: "carol") },
    "a failed save" => -> { User.create(username: "alice") },
    "a destroy" => -> { User.find_by!(username: "alice").destroy! },
    "a transaction" => -> { User.transaction { User.create!(username: "bob") } },
    "a validation" => -> { User.new(username: "bob").valid? },
    "records saved under an early lease" => -> { Leasehold.claiming! { |claims| claims.save(User.new(username: "bob")) } },
    "reconciliation" => -> { Leasehold::ReconcileJob.perform_now },
    "verification" => -> { Leasehold::VerifyJob.perform_now("User") },
    "a dry run" => -> { Leasehold::Verifier.new(User, dry_run: true).run },
    "a bulk job" => -> { Leasehold::BulkClaimsJob.perform_now("User", "username", { "create_record_ids" => User.ids }) }
  }.each do |what, work|
    it "are returned to their pools after #{what}" do
      expect(kept_by_thread(&work)).to be(false)
    end
  end
end
