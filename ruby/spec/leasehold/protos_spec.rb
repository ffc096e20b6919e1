# frozen_string_literal: true

require_relative "../../tasks/protos"

RSpec.describe Protos do
  it "has generated the committed code from the contract as it is now" do
    expect(described_class.generated).to eq(described_class.committed), "run `rake protos`"
  end
end
