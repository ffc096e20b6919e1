# frozen_string_literal: true

RSpec.describe Leasehold::Client::CircuitBreaker do
  let(:breaker) { described_class.new(limit: 3, failures: 2, open_seconds: 60) }
  let(:clock) { [1_000.0] }

  before { allow(breaker).to receive(:now) { clock.first } }

  # Lets the time pass for which an open circuit sends no begin.
  def outlive_the_open_circuit
    clock[0] += 60
  end

  def fail_once
    breaker.run { raise Leasehold::Error::Unavailable }
  rescue Leasehold::Error => e
    e
  end

  def open
    2.times { fail_once }
  end

  it "opens after consecutive failures, not after refusals" do
    expect(fail_once).not_to be_a(Leasehold::Error::CircuitOpen)
    expect { breaker.run { raise Leasehold::Error::Taken } }.to raise_error(Leasehold::Error::Taken)
    open
    expect { breaker.run { raise "it ran" } }.to raise_error(Leasehold::Error::CircuitOpen) do |error|
      expect(error.retry_after_seconds).to be > 0
    end
  end

  it "sends one probe through an open circuit; if the probe fails, the circuit opens again" do
    open
    entered = Queue.new
    fate = Queue.new
    outlive_the_open_circuit
    probe = Thread.new { breaker.run { entered << true and raise(fate.pop) } rescue $! }
    entered.pop
    expect(fail_once).to be_a(Leasehold::Error::CircuitOpen)
    fate << Leasehold::Error::Unavailable.new
    expect(probe.value).to be_a(Leasehold::Error::Unavailable)
    expect(fail_once).to be_a(Leasehold::Error::CircuitOpen)
    outlive_the_open_circuit
    expect(breaker.run { :answered }).to eq(:answered)
    expect(breaker.run { :closed }).to eq(:closed)
  end

  it "frees the slot of an interrupted call" do
    10.times do
      entered = Queue.new
      thread = Thread.new { breaker.run { entered << true and Queue.new.pop } }
      entered.pop
      thread.kill.join
    end
    expect(breaker.run { :room }).to eq(:room)
  end
end
