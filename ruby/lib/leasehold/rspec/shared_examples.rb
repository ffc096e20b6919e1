# frozen_string_literal: true

RSpec.shared_examples "cells claimable model" do |subject_type:, subject_key:, source_type:, claiming_attributes:|
  it "says what it claims, for whom and out of which table" do
    types = Cells::Claimable
    expect(described_class).to be < types, "`#{described_class}` claims nothing: add `include Cells::Claimable`"
    expect(described_class.cells_claims_subject_type)
      .to eq(Leasehold::Enumeration.number(types::CLAIMS_SUBJECT_TYPE, subject_type))
    expect(described_class.cells_claims_subject_key.to_s).to eq(subject_key.to_s)
    expect(described_class.cells_claims_source_type)
      .to eq(Leasehold::Enumeration.number(types::CLAIMS_SOURCE_TYPE, source_type))
    expect(described_class.cells_claims_attributes.keys).to match_array(claiming_attributes.map(&:to_sym))
  end
end

RSpec.shared_examples "creating new claims" do
  it "claims what is saved, in one update" do
    creates, destroys = one_update("`save!`") { subject.save! }

    expect_claims(creates, claims_records, "claimed")
    expect_claims(destroys, [], "given up")
  end
end

RSpec.shared_examples "deleting existing claims" do
  it "gives up what is destroyed, in one update" do
    subject.save!
    held = claims_records
    creates, destroys = one_update("`destroy!`") { subject.destroy! }

    expect_claims(creates, [], "claimed")
    expect_claims(destroys, held, "given up")
  end
end

RSpec.shared_examples "updating existing claims" do
  it "exchanges the claims of what changes, in one update" do
    changes = told_transform_attributes
    subject.save!
    held = claims_records(only: changes)
    creates, destroys = one_update("`update!`") { subject.update!(changes) }

    expect(destroys).not_to be_empty, "gave nothing up: does `transform_attributes` change what is claimed?"
    expect_claims(destroys, held & destroys, "given up")
    wanted = claims_records(only: changes)
    expect_claims(creates & wanted, wanted, "claimed")
  end
end

RSpec.shared_examples "not creating claims" do
  it "claims nothing of what is saved" do
    expect_claims(begun_claims { subject.save! }.flat_map(&:first), [], "claimed")
  end
end

RSpec.shared_examples "not deleting claims" do
  it "gives up nothing of what is destroyed" do
    subject.save!

    expect_claims(begun_claims { subject.destroy! }.flat_map(&:last), [], "given up")
  end
end

RSpec.shared_examples "not updating claims" do
  it "exchanges nothing of what changes" do
    changes = told_transform_attributes
    subject.save!
    begun = begun_claims { subject.update!(changes) }

    expect_claims(begun.flat_map(&:first), [], "claimed")
    expect_claims(begun.flat_map(&:last), [], "given up")
  end
end
