# frozen_string_literal: true

require "rbs"

require "leasehold/client"

# Compares sig/ with the code: every public method has a signature, and no signature is without a
# method. `spec/rails/signatures_spec.rb` compares the parts that need Rails.
RSpec.describe "signatures" do
  it "name exactly the public methods" do
    builder = Support::Signatures.builder
    classes = [
      Leasehold::Client, Leasehold::Configuration, Leasehold::Error, Leasehold::Reconciliation, Leasehold::Verification
    ]
    classes.each do |described_type|
      expect(Support::Signatures.instance_methods_of(builder, described_type))
        .to match_array(described_type.public_instance_methods(false)), described_type.name
    end
  end

  it "are valid throughout" do
    builder = Support::Signatures.builder
    ours = builder.env.class_decls.keys.select { |type| type.to_s.start_with?("::Leasehold") }
    expect(ours.size).to be > 60
    ours.each { |type| builder.build_singleton(type) && builder.build_instance(type) }
  end
end
