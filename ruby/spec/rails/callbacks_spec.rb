# frozen_string_literal: true

require "rails_helper"

RSpec.describe "`after_commit` and `after_rollback` callbacks", :rails do
  it "can change a committed claim" do
    renaming = Class.new(User) { after_commit(on: :create) { update!(username: "bob") } }
    seen = calls { renaming.create!(username: "alice") }

    expect(seen.map { |call| call[:call] }).to eq(%i[begin_update commit_update begin_update commit_update])
    expect(claimed(User, :username)).to eq(["bob"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "can change a claim that was committed under a lease begun before BEGIN" do
    renaming = Class.new(User) { after_commit(on: :create) { update!(username: "bob") } }
    Leasehold.claiming! { |claims| claims.save(renaming.new(username: "alice")) }

    expect(claimed(User, :username)).to eq(["bob"])
  end

  it "can claim a value whose lease was rolled back" do
    insisting = Class.new(User) { after_rollback { User.create!(username: "alice") } }
    expect do
      User.transaction do
        insisting.create!(username: "alice")
        User.connection.current_transaction.define_singleton_method(:commit) { raise "refused" }
      end
    end.to raise_error("refused")

    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end
end
