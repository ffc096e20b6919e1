# frozen_string_literal: true

require_relative "../../tasks/protos"

RSpec.describe Protos do
  it "generates exactly the committed code from the contract" do
    expect(described_class.generated).to eq(described_class.committed), "run `rake protos`"
  end
end
