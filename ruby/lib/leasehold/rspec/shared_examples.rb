# frozen_string_literal: true

RSpec.shared_examples "cells claimable model" do |subject_type:, subject_key:, source_type:, claiming_attributes:|
  it "says what it claims, for whom and out of which table" do
    types = Cells::Claimable
    expect(described_class.cells_claims_subject_type)
      .to eq(Leasehold::Enumeration.number(types::CLAIMS_SUBJECT_TYPE, subject_type))
    expect(described_class.cells_claims_subject_key.to_s).to eq(subject_key.to_s)
    expect(described_class.cells_claims_source_type)
      .to eq(Leasehold::Enumeration.number(types::CLAIMS_SOURCE_TYPE, source_type))
    expect(described_class.cells_claims_attributes.keys).to match_array(claiming_attributes)
  end
end

RSpec.shared_examples "creating new claims" do
  it "claims what is saved, in one update" do
    begun = begun_claims { subject.save! }

    expect(begun.size).to eq(1)
    expect(begun.dig(0, 0)).to match_array(claims_records)
    expect(begun.dig(0, 1)).to be_empty
  end
end

RSpec.shared_examples "deleting existing claims" do
  it "gives up what is destroyed, in one update" do
    subject.save!
    held = claims_records
    begun = begun_claims { subject.destroy! }

    expect(begun.size).to eq(1)
    expect(begun.dig(0, 0)).to be_empty
    expect(begun.dig(0, 1)).to match_array(held)
  end
end

RSpec.shared_examples "updating existing claims" do
  it "exchanges the claims of what changes, in one update" do
    subject.save!
    held = claims_records(only: transform_attributes)
    begun = begun_claims { subject.update!(transform_attributes) }

    expect(begun.size).to eq(1)
    expect(begun.dig(0, 1)).not_to be_empty
    expect(begun.dig(0, 1) - held).to be_empty
    expect(claims_records(only: transform_attributes) - begun.dig(0, 0)).to be_empty
  end
end

RSpec.shared_examples "not creating claims" do
  it "claims nothing of what is saved" do
    expect(begun_claims { subject.save! }.flat_map(&:first)).to be_empty
  end
end

RSpec.shared_examples "not deleting claims" do
  it "gives up nothing of what is destroyed" do
    subject.save!

    expect(begun_claims { subject.destroy! }.flat_map(&:last)).to be_empty
  end
end

RSpec.shared_examples "not updating claims" do
  it "exchanges nothing of what changes" do
    subject.save!

    expect(begun_claims { subject.update!(transform_attributes) }).to be_empty
  end
end
