# frozen_string_literal: true

require "rails_helper"

# What comes over a thread while it waits for the answer to a begin, within the transaction.
RSpec.describe "a save that is interrupted while the server hangs", :rails do
  let!(:user) { User.create!(username: "alice") }

  before { Leasehold.configuration.request_deadline_seconds = 10 }
  after { Leasehold.configuration.request_deadline_seconds = 0.3 }

  # Learns from the begin's event how much had been sent before it, and that it has ended.
  def watch(proxy)
    sent = @sent_before = []
    Object.new.tap do |watch|
      watch.define_singleton_method(:finish) { |*| proxy.release_answers }
      watch.define_singleton_method(:start) { |*| sent.push(proxy.client_bytes) }
    end
  end

  # Runs the block while no answer comes; they come again once the first begin has ended.
  def hanging
    Support::TcpProxy.run(server.address) do |proxy|
      Support::Cell[1].configure(proxy.address)
      Leasehold.client.warm_up
      proxy.hold_answers
      late = ActiveSupport::Notifications.subscribe("begin_update.leasehold", watch(proxy))
      yield proxy
    ensure
      ActiveSupport::Notifications.unsubscribe(late)
      Support::Cell[1].configure(server.address)
    end
  end

  # Renames in a thread, to which the block does something once the begin is under way.
  #
  # @return [Array] what became of the thread's connection
  def renaming_in_thread(proxy)
    left = nil
    thread = Thread.new { User.connection_pool.with_connection { |connection| rename_over(connection) { |state| left = state } } }
    thread.report_on_exception = false
    wait_for("a begin") { @sent_before.any? && proxy.client_bytes > @sent_before.first }
    yield thread
    expect(thread.join(Support::Waiting::DEADLINE_SECONDS)).to be(thread)
    left
  end

  def rename_over(connection)
    User.find(user.id).update!(username: "bob")
  rescue Interrupt
    # As the thread was told; or it was killed.
  ensure
    yield state(connection)
  end

  def state(connection)
    [connection.open_transactions, connection.raw_connection.transaction_status]
  end

  def expect_nothing_changed
    expect(User.pluck(:username)).to eq(["alice"])
    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  it "is rolled back by `Timeout.timeout`, which throws" do
    hanging do
      expect { Timeout.timeout(1) { user.update!(username: "bob") } }.to raise_error(Timeout::Error)
      expect(state(User.connection)).to eq([0, PG::PQTRANS_IDLE])
    end

    expect_nothing_changed
    User.create!(username: "bob")
    expect(claimed(User, :username)).to eq(%w[alice bob])
  end

  it "is rolled back by what another thread raises in it" do
    left = hanging { |proxy| renaming_in_thread(proxy) { |thread| thread.raise(Interrupt) } }

    expect(left).to eq([0, PG::PQTRANS_IDLE])
    expect_nothing_changed
  end

  it "is rolled back where its thread is killed" do
    left = hanging { |proxy| renaming_in_thread(proxy, &:kill) }

    expect(left).to eq([0, PG::PQTRANS_IDLE])
    expect_nothing_changed
  end
end
