# frozen_string_literal: true

require "rails_helper"

RSpec.describe "claims of a transaction", :rails do
  let(:connection) { ActiveRecord::Base.connection }

  def begun(seen)
    seen.select { |call| call[:call] == :begin_update }
  end

  describe "of an organization" do
    let(:organizations) { [5, 6] }

    before { Leasehold.configuration.organization_id { organizations.shift } }
    after { Leasehold.configuration.organization_id { nil } }

    it "are begun with the organization that the block returns" do
      allow(Leasehold.client).to receive(:begin_update).and_call_original
      User.create!(username: "alice")
      User.find_by!(username: "alice").update!(username: "bob")

      [5, 6].each { |id| expect(Leasehold.client).to have_received(:begin_update).with(include(organization_id: id)).once }
    end

    it "are freed after a begin without an answer, although another organization is current by then" do
      allow(Leasehold.client).to receive(:begin_update).and_wrap_original do |original, **update|
        original.call(**update)
        raise Leasehold::Error::DeadlineExceeded, "no answer"
      end
      expect { User.create!(username: "alice") }.to raise_error(Leasehold::ClaimsUnavailable)

      expect(organizations).to eq([6])
      expect(outstanding_leases).to be_empty
    end
  end

  describe "with one save" do
    it "are created with the record, and leave no lease outstanding" do
      seen = calls { User.create!(username: "alice") }

      expect(seen.map { |call| call[:call] }).to eq(%i[begin_update commit_update])
      expect(claimed(User, :username)).to eq(["alice"])
      expect(claimed(User, :id)).to eq([User.last.id.to_s])
      expect(outstanding_leases + lease_rows).to be_empty
    end

    it "are exchanged with the value" do
      user = User.create!(username: "alice")
      seen = calls { user.update!(username: "bob") }

      expect(begun(seen)).to contain_exactly(include(creates: 1, destroys: 1))
      expect(claimed(User, :username)).to eq(["bob"])
    end

    it "are destroyed with the record" do
      user = User.create!(username: "alice", emails: [Email.new(email: "alice@example.com")])
      user.destroy!

      expect(claimed(User, :username) + claimed(User, :id) + claimed(Email, :email)).to be_empty
    end

    it "are destroyed for the stored value, not for a later assigned one" do
      user = User.create!(username: "alice")
      user.username = "bob"
      user.destroy!

      expect(claimed(User, :username)).to be_empty
    end

    it "are destroyed for the row's value, not for an older one of the instance" do
      instances = Array.new(3) { User.find_or_create_by!(username: "alice") }
      instances[0].update!(username: "bob")
      instances[1].update!(username: "carol")
      expect(claimed(User, :username)).to eq(["carol"])

      instances[2].destroy!
      expect(claimed(User, :username)).to be_empty
    end

    it "are created from the row's values of columns that another instance has written" do
      owners = %w[alice bob].map { |name| User.create!(username: name) }
      Email.create!(email: "old@example.com", user: owners.first)
      value, subject, both = Array.new(3) { Email.last }
      value.update!(email: "new@example.com")
      subject.update!(user: owners.last)
      both.email = "newest@example.com"
      Leasehold.claiming! { |claims| claims.save(both) }

      expect(records(Email, :email).map { |record| [record.claim.bucket_value, record.claim.subject_id] })
        .to eq([["newest@example.com", owners.last.id]])
    end

    it "are destroyed for a row that the database deleted by itself" do
      user = User.create!(username: "alice")
      User.where(id: user.id).delete_all
      user.destroy!

      expect(claimed(User, :username)).to be_empty
    end

    it "cause no call if no claim changes" do
      user = User.create!(username: "alice")

      expect(calls { user.touch && user.update!(username: "alice") }).to be_empty
    end

    it "are replaced without a gap if the spelling changes" do
      user = User.create!(username: "alice")
      user.update!(username: "Alice")

      expect(claimed(User, :username)).to eq(["Alice"])
    end

    it "are replaced if the subject changes" do
      owners = [User.create!(username: "alice"), User.create!(username: "bob")]
      email = Email.create!(email: "shared@example.com", user: owners.first)
      seen = calls { email.update!(user: owners.last) }

      expect(begun(seen)).to contain_exactly(include(creates: 1, destroys: 1))
      expect(records(Email, :email).map { |record| record.claim.subject_id }).to eq([owners.last.id])
    end

    it "move to a changed primary key" do
      user = User.create!(username: "alice")
      user.update!(id: user.id + 1)

      expect(claimed(User, :id)).to eq([user.id.to_s])
      expect(records(User, :username).map { |record| record.claim.source_id }).to eq([[user.id].pack("Q>")])
    end
  end

  describe "with several saves" do
    it "become one update, with those of associations" do
      seen = calls do
        User.create!(username: "alice", emails: [Email.new(email: "a@example.com")], routes: [Route.new(path: "alice")])
      end

      expect(begun(seen)).to contain_exactly(include(creates: 4, destroys: 0))
    end

    it "of one row become its net effect" do
      user = User.create!(username: "alice")
      there_and_back = calls do
        User.transaction { %w[bob carol alice].each { |name| User.find(user.id).update!(username: name) } }
      end
      onwards = calls { User.transaction { %w[bob carol].each { |name| user.reload.update!(username: name) } } }

      expect(there_and_back).to be_empty
      expect(begun(onwards)).to contain_exactly(include(creates: 1, destroys: 1))
      expect(claimed(User, :username)).to eq(["carol"])
    end

    it "of a row that is created and destroyed cause no call" do
      seen = calls { User.transaction { User.create!(username: "alice").destroy! } }

      expect(seen).to be_empty
    end

    it "move a value from one row to another" do
      alice, bob = %w[alice bob].map { |name| User.create!(username: name) }
      User.transaction do
        alice.update!(username: "carol")
        bob.update!(username: "alice")
      end

      by_value = records(User, :username).to_h { |record| [record.claim.bucket_value, record.claim.subject_id] }
      expect(by_value).to eq("carol" => alice.id, "alice" => bob.id)
    end
  end

  describe "with savepoints" do
    it "lose the changes of a savepoint that is rolled back" do
      User.transaction do
        User.create!(username: "alice")
        User.transaction(requires_new: true) do
          User.create!(username: "bob")
          raise ActiveRecord::Rollback
        end
      end

      expect(claimed(User, :username)).to eq(["alice"])
    end

    it "are those from before a savepoint that is rolled back" do
      user = User.create!(username: "alice")
      User.transaction do
        user.update!(username: "bob")
        User.transaction(requires_new: true) do
          user.update!(username: "carol")
          raise ActiveRecord::Rollback
        end
      end

      expect(User.pluck(:username)).to eq(["bob"])
      expect(claimed(User, :username)).to eq(["bob"])
    end

    it "are destroyed for the row's value, though an instance keeps a rolled back one" do
      user = User.create!(username: "alice")
      User.transaction do
        User.transaction(requires_new: true) do
          user.update!(username: "bob")
          raise ActiveRecord::Rollback
        end
        user.update!(username: "carol")
      end

      expect(claimed(User, :username)).to eq(["carol"])
    end

    it "are destroyed for the row's value, also by another instance" do
      other = nil
      User.create!(username: "alice")
      User.transaction do
        User.transaction(requires_new: true) do
          User.last.update!(username: "bob")
          other = User.last
          raise ActiveRecord::Rollback
        end
        other.destroy!
      end

      expect(claimed(User, :username)).to be_empty
    end

    it "keep the changes of a released savepoint in order" do
      User.transaction do
        User.transaction(requires_new: true) do
          User.transaction(requires_new: true) { User.create!(username: "alice").update!(username: "bob") }
        end
        User.last.update!(username: "carol")
      end

      expect(claimed(User, :username)).to eq(["carol"])
    end
  end

  # ActiveRecord runs `after_commit` at the end of each transaction inside of one with `joinable: false`.
  describe "within an unjoinable transaction" do
    it "are begun before `after_commit` runs, and committed with it" do
      steps = []
      model = stub_const("LoggingUser", Class.new(User) { after_commit { steps << :after_commit } })
      begun = ActiveSupport::Notifications.subscribe("begin_update.leasehold") { steps << :begin_update }
      User.transaction(joinable: false) do
        model.create!(username: "alice")
        User.create!(username: "bob")
        expect(outstanding_leases.size).to eq(2)
      end

      expect(steps).to eq(%i[begin_update after_commit begin_update])
      expect(claimed(User, :username)).to eq(%w[alice bob])
      expect(outstanding_leases + lease_rows).to be_empty
    ensure
      ActiveSupport::Notifications.unsubscribe(begun)
    end

    it "are rolled back with it" do
      seen = calls do
        User.transaction(joinable: false) do
          User.create!(username: "alice")
          raise ActiveRecord::Rollback
        end
      end

      expect(seen.map { |call| call[:call] }).to eq(%i[begin_update rollback_update])
      expect(claimed(User, :username) + outstanding_leases).to be_empty
    end

    it "are refused one save at a time" do
      as_cell(2) { User.create!(username: "bob") }
      refused = User.new(username: "bob")
      User.transaction(joinable: false) do
        User.create!(username: "alice")
        expect(refused.save).to be(false)
        expect { User.transaction { User.create(username: "bob") } }.to raise_error(Leasehold::ClaimsRejected)
      end

      expect(refused.errors).to be_of_kind(:username, :taken)
      expect(User.pluck(:username)).to eq(["alice"])
      expect(claimed(User, :username)).to eq(["alice"])
    end

    it "are refused if one value changes twice, and the other changes stay" do
      User.transaction(joinable: false) do
        user = User.create!(username: "alice")
        expect { user.update!(username: "bob") }.to raise_error(Leasehold::Error::Invalid, /one value twice/)
      end

      expect(User.pluck(:username)).to eq(["alice"])
      expect(claimed(User, :username)).to eq(["alice"])
      expect(outstanding_leases + lease_rows).to be_empty
    end
  end

  describe "in transactional tests" do
    before { Leasehold.configuration.transactional_tests = true }
    after { Leasehold.configuration.transactional_tests = false }

    def nested(depth, &test)
      return test.call if depth.zero?

      connection.begin_transaction(joinable: false, _lazy: false)
      begin
        nested(depth - 1, &test)
      ensure
        connection.rollback_transaction
      end
    end

    # The test framework opens one transaction, and each `before_all` another. It opens none (depth 0) for
    # databases that a test does not use.
    [0, 1, 2, 3].each do |depth|
      it "are committed with the savepoint in #{depth} transactions" do
        seen = calls do
          nested(depth) do
            User.transaction do
              User.transaction(requires_new: true) { User.create!(username: "alice") }
              User.create!(username: "bob")
            end
            Leasehold.claiming! { |claims| claims.save(User.new(username: "carol")) }
          end
        end

        expect(seen.map { |call| call[:call] }).to eq(%i[begin_update commit_update] * 2)
        expect(begun(seen).first).to include(creates: 4)
      end

      it "are refused with an error of the transaction in #{depth} transactions" do
        as_cell(2) { User.create!(username: "alice") }
        Leasehold.configuration.transactional_tests = true
        nested(depth) do
          expect(User.create(username: "alice").errors).to be_of_kind(:username, :taken)
          expect { User.transaction { User.create(username: "alice") } }.to raise_error(Leasehold::ClaimsRejected)
        end
      end
    end
  end

  describe "with failures" do
    it "cause no call if another callback raises immediately before COMMIT" do
      refuse = Object.new.tap { |participant| participant.extend(Leasehold::ActiveRecordCompat::Participant) }
      refuse.define_singleton_method(:before_committed!) { raise "refused" }
      seen = calls do
        expect do
          User.transaction do
            User.create!(username: "alice")
            connection.add_transaction_record(refuse)
          end
        end.to raise_error("refused")
      end

      expect(seen).to be_empty
      expect(User.count).to eq(0)
    end

    it "cause no call if the transaction itself fails" do
      seen = calls do
        User.transaction do
          User.create!(username: "alice")
          raise ActiveRecord::Rollback
        end
      end

      expect(seen).to be_empty
    end

    it "cause no call if the database has no lease table" do
      connection.execute("ALTER TABLE cells_outstanding_leases RENAME TO elsewhere")
      seen = calls do
        [
          -> { User.create!(username: "alice") },
          -> { Leasehold.claiming! { |claims| claims.save(User.new(username: "bob")) } }
        ].each { |save| expect(&save).to raise_error(Leasehold::Error::Misconfigured, /no table `cells_outstanding_leases`: run the migration/) }
      end

      expect(seen).to be_empty
    ensure
      connection.execute("ALTER TABLE elsewhere RENAME TO cells_outstanding_leases")
    end

    it "are committed if an `after_commit` callback fails" do
      failing = Class.new(User) { after_commit { raise "too late" } }
      expect { failing.create!(username: "alice") }.to raise_error("too late")

      expect(claimed(User, :username)).to eq(["alice"])
      expect(outstanding_leases + lease_rows).to be_empty
    end
  end

  it "are begun if a `before_commit` callback makes them" do
    late = Object.new.tap { |participant| participant.extend(Leasehold::ActiveRecordCompat::Participant) }
    late.define_singleton_method(:before_committed!) { User.create!(username: "bob") }
    User.transaction do
      User.create!(username: "alice")
      connection.add_transaction_record(late)
    end

    expect(claimed(User, :username)).to eq(%w[alice bob])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  describe "of changes made during COMMIT, with none before" do
    # Defines an email whose user has a callback for the deferred touch at COMMIT.
    def touching
      stub_const("TouchingEmail", Class.new(ActiveRecord::Base) do
        self.table_name = "emails"
        belongs_to :user, touch: true
      end)
    end

    def touched(&after_touch)
      user = stub_const("TouchedUser", Class.new(User) { after_touch(&after_touch) }).create!(username: "alice")
      touching.create!(user: user, email: "a@example.com")
    end

    it "are begun if a callback for a deferred touch makes them" do
      touched { update!(username: "bob") }
      expect(claimed(User, :username)).to eq(["bob"])
      expect(outstanding_leases + lease_rows).to be_empty
    end

    it "are refused if another cell owns the name, and no row is written" do
      as_cell(2) { User.create!(username: "bob") }
      expect { touched { update!(username: "bob") } }.to raise_error(Leasehold::ClaimsRejected)
      expect(User.pluck(:username)).to eq(["alice"])
      expect(Email.count).to eq(0)
    end

    it "are begun if a `before_commit` callback of a model without claims makes them" do
      model = touching.tap { |kind| kind.before_commit { User.create!(username: email) } }
      user = User.create!(username: "alice")
      seen = calls { model.create!(user_id: user.id, email: "bob") }
      expect(begun(seen)).to contain_exactly(include(creates: 2))
      expect(claimed(User, :username)).to eq(%w[alice bob])
      expect(outstanding_leases + lease_rows).to be_empty
    end
  end

  describe "that are more than one update can hold (B11)" do
    def create_many(last)
      User.transaction { [*1..1000, last].each { |number| User.create!(username: "user#{number}") } }
    end

    it "become several updates" do
      seen = calls { create_many(1001) }

      expect(seen.map { |call| call.slice(:call, :creates, :code).values })
        .to eq([[:begin_update, 2002, "LIMIT_EXCEEDED"], *[2000, 2].map { |creates| [:begin_update, creates, "OK"] }, *[[:commit_update, "OK"]] * 2])
      expect(outstanding_leases + lease_rows).to be_empty
      rename_all
      expect(name_of("user1001")).to eq("USER1001")
    end

    # Renames all users, in another spelling of the same name: the create and the destroy of each must be in
    # one update.
    def rename_all
      User.transaction { User.find_each { |user| user.update!(username: user.username.upcase) } }
    end

    def name_of(name)
      Leasehold.client.get_record(User.cells_claims_declarations.fetch(:username).type, name).claim.bucket_value
    end

    it "become several updates in the lease-first mode too" do
      users = Array.new(1001) { |number| User.new(username: "user#{number}") }
      Leasehold.claiming! { |claims| claims.save(*users) }

      expect(name_of("user1000")).to eq("user1000")
      expect(outstanding_leases + lease_rows).to be_empty
    end

    it "are refused together" do
      as_cell(2) { User.create!(username: "user1001") }
      expect { create_many(1001) }.to raise_error(Leasehold::ClaimsRejected)

      expect(User.count).to eq(0)
      expect(claimed(User, :username) + outstanding_leases).to be_empty
    end
  end

  it "are one update per database" do
    seen = calls do
      User.transaction do
        Key.transaction do
          user = User.create!(username: "alice")
          Key.create!(fingerprint: "SHA256:abc", user_id: user.id)
        end
      end
    end

    expect(begun(seen)).to contain_exactly(include(creates: 2), include(creates: 1))
    expect(claimed(Key, :fingerprint)).to eq(["SHA256:abc"])
    expect(lease_rows + lease_rows(KeysRecord)).to be_empty
  end
end
