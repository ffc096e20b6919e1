# frozen_string_literal: true

RSpec.describe Leasehold::Error do
  it "has a class for every reason of the engine" do
    reasons = File.read(File.expand_path("../../../core/src/rejection.rs", __dir__)).scan(/=> "([A-Z_]+)",$/).flatten
    expect(reasons.size).to be >= 12
    expect(described_class::BY_CODE.keys).to include(*reasons)
  end

  it "lists the positions of rejected claims" do
    error = described_class.from_engine("CLAIM_BUSY", "busy", [["creates", 2, 4, "CLAIM_BUSY"], ["destroys", 0, 4, "CLAIM_BUSY"]])
    expect(error).to be_a(described_class::Busy).and be_temporary
    expect([error.create_positions, error.destroy_positions]).to eq([[2], [0]])
    expect(described_class.from_engine("NEWER_THAN_THIS", "?", [])).to be_a(described_class::Internal)
  end
end
