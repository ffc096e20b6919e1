# frozen_string_literal: true

RSpec.shared_examples "cells claimable model" do |subject_type:, subject_key:, source_type:, claiming_attributes:|
  it "declares its claims, their subject and their source table" do
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
  it "creates the claims of a saved record in one update" do
    creates, destroys = single_update("`save!`") { subject.save! }

    expect_claims(creates, claims_records, "created")
    expect_claims(destroys, [], "destroyed")
  end
end

RSpec.shared_examples "deleting existing claims" do
  it "destroys the claims of a destroyed record in one update" do
    subject.save!
    owned = claims_records
    creates, destroys = single_update("`destroy!`") { subject.destroy! }

    expect_claims(creates, [], "created")
    expect_claims(destroys, owned, "destroyed")
  end
end

RSpec.shared_examples "updating existing claims" do
  it "destroys the old claims and creates the new ones in one update" do
    changes = required_transform_attributes
    subject.save!
    owned = claims_records(only: changes)
    creates, destroys = single_update("`update!`") { subject.update!(changes) }

    expect(destroys).not_to be_empty, "expected the update to destroy claims: change a claimed attribute in `transform_attributes`"
    expect_claims(destroys, owned & destroys, "destroyed")
    wanted = claims_records(only: changes)
    expect_claims(creates & wanted, wanted, "created")
  end
end

RSpec.shared_examples "not creating claims" do
  it "creates no claim for a saved record" do
    expect_claims(begun_claims { subject.save! }.flat_map(&:first), [], "created")
  end
end

RSpec.shared_examples "not deleting claims" do
  it "destroys no claim of a destroyed record" do
    subject.save!

    expect_claims(begun_claims { subject.destroy! }.flat_map(&:last), [], "destroyed")
  end
end

RSpec.shared_examples "not updating claims" do
  it "changes no claim of an updated record" do
    changes = required_transform_attributes
    subject.save!
    begun = begun_claims { subject.update!(changes) }

    expect_claims(begun.flat_map(&:first), [], "created")
    expect_claims(begun.flat_map(&:last), [], "destroyed")
  end
end
