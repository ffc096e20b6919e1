# frozen_string_literal: true

require "rails_helper"

# A lease is settled by the outcome of its transaction, not by what ActiveRecord reports of it.
RSpec.describe "a lease begun before BEGIN", :rails do
  let!(:user) { User.create!(username: "alice") }

  # Renames the user, with a callback that runs after the UPDATE.
  def rename(&after_update)
    model = stub_const("FailingUser", Class.new(User) { after_update(&after_update) })
    renamed = model.find(user.id)
    renamed.username = "bob"
    Leasehold.claiming! { |claims| claims.save(renamed) }
  end

  # Until Rails 7.0 ActiveRecord reports the rollback before the transaction is rolled back (activerecord
  # 6.1.7.10, connection_adapters/abstract/transaction.rb:324, 311 and 335).
  %w[Deadlocked SerializationFailure].each do |name|
    it "is rolled back after #{name}, though its transaction still sees the lease's row" do
      error = ActiveRecord.const_get(name)
      seen = calls { expect { rename { raise error, "raised by a callback" } }.to raise_error(error) }

      expect(seen.map { |call| call[:call] }).to eq(%i[begin_update rollback_update])
      expect_only_alice
    end
  end

  it "is rolled back at once after a deadlock" do
    other = User.create!(username: "other")
    seen = calls { expect { rename_until_deadlock(other) }.to raise_error(ActiveRecord::Deadlocked) }
    other.destroy!

    expect(seen.map { |call| call[:call] }).to eq(%i[begin_update rollback_update])
    expect_only_alice
  end

  # PostgreSQL answers the COMMIT of an aborted transaction with ROLLBACK, and ActiveRecord takes that for a
  # COMMIT.
  it "is rolled back if a callback hides that the transaction is aborted" do
    hidden_failure = lambda do
      User.connection.execute("SELECT 1 / 0")
    rescue ActiveRecord::StatementInvalid
      nil
    end
    seen = calls do
      expect { rename { hidden_failure.call } }.to raise_error(ActiveRecord::StatementInvalid, /a statement of the transaction failed/)
    end

    expect(seen.map { |call| call[:call] }).to eq(%i[begin_update rollback_update])
    expect_only_alice
  end

  def rename_until_deadlock(other)
    rival = PG.connect(Support::PostgresCluster.instance.url(Support::Cell[1].database))
    # PostgreSQL aborts the session whose `deadlock_timeout` passes first, so the rival gets the longer one.
    rival.exec("SET deadlock_timeout = '60s'; BEGIN; UPDATE users SET updated_at = now() WHERE id = #{other.id}")
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = #{rival.backend_pid}"
    cell = Support::Cell[1]
    rename do
      rival.send_query("UPDATE users SET updated_at = now() WHERE id = #{id}")
      Support::Waiting.wait_for("the rival's lock") { cell.query(waiting).any? }
      self.class.connection.execute("UPDATE users SET updated_at = now() WHERE id = #{other.id}")
    end
  ensure
    rival&.close
  end
end

# Raw SQL, or a method of the connection, that ends a transaction while ActiveRecord takes it for open.
RSpec.describe "a transaction that is over before its COMMIT", :rails do
  endings = {
    "a raw ROLLBACK" => ->(connection) { connection.execute("ROLLBACK") },
    "`reconnect!`" => lambda(&:reconnect!), "`reset!`" => lambda(&:reset!), "`disconnect!`" => lambda(&:disconnect!),
    "`throw_away!`" => lambda(&:throw_away!)
  }

  before { User.create!(username: "alice") }

  # Runs the transaction, and connects again. On a closed connection, the ROLLBACK of Rails 6.1 fails too, and
  # raises an error whose cause is the first error.
  #
  # @return [Array<Exception>] the error that leaves the transaction, and its causes
  def errors_of
    yield
    []
  rescue StandardError => error
    [error].tap { |errors| errors << errors.last.cause while errors.last.cause }
  ensure
    User.connection.verify!
  end

  endings.each do |name, ending|
    it "is refused after #{name} if it changed claims, and leaves no claim" do
      errors = []
      seen = calls do
        errors = errors_of do
          User.transaction do
            User.create!(username: "bob")
            ending.call(User.connection)
          end
        end
      end

      expect(errors.map(&:message)).to include(/ended before its COMMIT/)
      expect(seen).to be_empty
      expect_only_alice
    end

    it "gets no error of the gem after #{name} if it changed no claim" do
      stub_const("Plain", Class.new(ApplicationRecord) { self.table_name = "users" })
      errors = errors_of do
        Plain.transaction do
          Plain.create!(username: "bob")
          ending.call(Plain.connection)
        end
      end

      expect(errors.map(&:class)).not_to include(NoMethodError)
      expect(errors.map(&:message)).not_to include(/ended before its COMMIT/)
      expect_only_alice
    end
  end

  it "is refused after a raw ROLLBACK if its lease was begun before BEGIN, and the lease is rolled back" do
    user = User.create!(username: "bob")
    stub_const("EndingUser", Class.new(User) { after_update { self.class.connection.execute("ROLLBACK") } })
    renamed = EndingUser.find(user.id).tap { |record| record.username = "carol" }

    expect { Leasehold.claiming! { |claims| claims.save(renamed) } }.to raise_error(ActiveRecord::StatementInvalid, /ended before/)
    user.destroy!
    expect_only_alice
  end
end
