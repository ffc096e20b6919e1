# frozen_string_literal: true

RSpec.describe Leasehold::Locks::Silence do
  let(:now) { [1_000_000_000] }
  let!(:silence) { described_class.new(16_000_000, 16_000_000, now.first) }

  before { allow(Leasehold::Locks::Clock).to receive(:micros) { now.first } }

  def after(seconds)
    now[0] = 1_000_000_000 + (seconds * 1_000_000).to_i
    silence.standing
  end

  it "takes off one sixteenth for the drift of clocks (K11)" do
    expect([after(0), after(14.9), after(15), after(29.9), after(30)]).to eq(%i[safe safe jeopardy jeopardy lost])
  end

  it "counts from the sending of the call, not from its answer (K11)" do
    after(5)
    sent_at = now.first
    after(14)
    silence.renewed(sent_at)
    expect([silence.remaining, silence.changes_in]).to eq([21.0, 6.0])
    expect(after(20)).to eq(:jeopardy)
  end

  it "never becomes safe again once it was lost (K02)" do
    after(30)
    silence.renewed(now.first)
    expect([silence.standing, silence.remaining, silence.changes_in]).to eq([:lost, 0.0, nil])
    # Another thread may note a renewal just before the standing is told.
    expect(after(5)).to eq(:lost)
  end

  it "is not lost by a clock that goes back" do
    expect([after(-5), silence.remaining]).to eq([:safe, 30.0])
  end
end
