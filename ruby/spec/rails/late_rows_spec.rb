# frozen_string_literal: true

require "rails_helper"

# Rows that callbacks write while ActiveRecord is about to send COMMIT.
RSpec.describe "rows written on the way to COMMIT", :rails do
  in_savepoint = -> { User.transaction(requires_new: true) { User.create!(username: "late") } }

  # Defines two examples for code that writes the user `late`.
  def self.claimed_or_refused(how, &write)
    it "are claimed: #{how}" do
      instance_exec(&write)

      expect(claimed(User, :username)).to match_array(User.pluck(:username)).and include("late")
      expect(outstanding_leases + lease_rows).to be_empty
    end

    it "are refused if another cell owns the name: #{how}" do
      as_cell(2) { User.create!(username: "late") }
      expect { instance_exec(&write) }.to raise_error(Leasehold::ClaimsRejected)

      expect(User.pluck(:username)).to eq(["owner"])
      expect(claimed(User, :username) + outstanding_leases).to eq(["owner"])
    end
  end

  let!(:owner) { User.create!(username: "owner") }

  # Creates a record of a model without claims, with a callback that runs before COMMIT.
  def create_plain(&before_commit)
    model = stub_const("PlainEmail", Class.new(ActiveRecord::Base) do
      self.table_name = "emails"
      before_commit(&before_commit)
    end)
    model.create!(email: "plain@example.com", user_id: owner.id)
  end

  # Registers a block with an object that is no model. Gems that add `before_commit` to the transactions of
  # older Rails do the same (after_commit_everywhere 1.6.0, lib/after_commit_everywhere/wrap.rb).
  def before_commit(&block)
    participant = Object.new.extend(Leasehold::ActiveRecordCompat::Participant)
    participant.define_singleton_method(:before_committed!, &block)
    User.connection.add_transaction_record(participant)
  end

  claimed_or_refused("in a savepoint, by a claimed model's `before_commit`") do
    model = stub_const("LateUser", Class.new(User) { before_commit { in_savepoint.call if username == "first" } })
    model.create!(username: "first")
  end

  claimed_or_refused("in a savepoint, by a deferred `after_touch`") do
    user = stub_const("TouchedUser", Class.new(User) { after_touch { in_savepoint.call } })
    email = stub_const("TouchingEmail", Class.new(Email) { belongs_to :user, touch: true, class_name: "TouchedUser" })
    email.create!(email: "a@example.com", user: user.find(owner.id))
  end

  claimed_or_refused("in a savepoint, by `before_commit` of a model without claims") { create_plain { in_savepoint.call } }

  claimed_or_refused("in a savepoint, beside other changes of claims") do
    User.transaction do
      User.create!(username: "first")
      create_plain { in_savepoint.call }
    end
  end

  # From Rails 7.1 on `find_or_create_by!` opens a savepoint (activerecord 7.2.2.2, relation.rb:224).
  claimed_or_refused("by `find_or_create_by!`") { create_plain { User.find_or_create_by!(username: "late") } }

  claimed_or_refused("by an object that is no model") do
    User.transaction { before_commit { User.create!(username: "late") } }
  end

  claimed_or_refused("by an object that is no model, beside other changes of claims") do
    User.transaction do
      before_commit { in_savepoint.call }
      User.create!(username: "first")
    end
  end

  describe "by the transaction's own callback" do
    before { skip("this Rails has none") unless User.connection.current_transaction.respond_to?(:before_commit) }

    # The transaction's own callback runs after those of all models (activerecord 7.2.2.2,
    # connection_adapters/abstract/transaction.rb:291).
    claimed_or_refused("alone, or beside other changes of claims") do
      User.transaction { User.connection.current_transaction.before_commit { in_savepoint.call } }
      User.transaction do
        User.create!(username: "first")
        User.connection.current_transaction.before_commit { User.create!(username: "later") }
      end
    end
  end

  it "are refused after their transaction's claims are begun" do
    write = lambda do
      User.transaction do
        User.create!(username: "first")
        User.connection.current_transaction.define_singleton_method(:before_commit_records) do
          super()
          User.create!(username: "late")
        end
      end
    end
    expect(&write).to raise_error(Leasehold::Error::Internal, /`User#id` was written after the claims/)

    expect(User.pluck(:username)).to eq(["owner"])
    expect(claimed(User, :username) + outstanding_leases).to eq(["owner"])
  end
end
