# frozen_string_literal: true

require "rbs"

require "leasehold/client"
require "leasehold/queues"

# Compares sig/ with the code: every public method has a signature, and no signature is without a
# method. `spec/rails/signatures_spec.rb` compares the parts that need Rails.
RSpec.describe "signatures" do
  it "name exactly the public methods" do
    builder = Support::Signatures.builder
    classes = [
      Leasehold::Batch, Leasehold::Client, Leasehold::Client::ExpectedStore, Leasehold::Configuration, Leasehold::Error,
      Leasehold::HeldLock, Leasehold::Locks, Leasehold::Locks::Connected, Leasehold::Locks::Holding, Leasehold::Native::Deadlines,
      Leasehold::Queues, Leasehold::Reconciliation, Leasehold::RequestQueue, Leasehold::Verification, Leasehold::Worker
    ]
    classes.each do |described_type|
      expect(Support::Signatures.instance_methods_of(builder, described_type))
        .to match_array(described_type.public_instance_methods(false)), described_type.name
    end
  end

  it "name every public constant, apart from the modules that only the gem uses" do
    environment = Support::Signatures.builder.env
    described = [Leasehold, Leasehold::Client, Leasehold::Configuration, Leasehold::Error, Leasehold::Native]
    constants = described.flat_map do |type|
      values = type.constants(false).reject { |name| type.autoload?(name, false) || type.const_get(name, false).is_a?(Module) }
      values.map { |name| "::#{type.name}::#{name}" }
    end

    expect(constants.size).to be > 5
    expect(environment.constant_decls.keys.map(&:to_s)).to include(*constants)
  end

  it "name every class that the documents name" do
    documents = Dir[File.expand_path("../../../docs/src/**/*.md", __dir__)]
    named = documents.flat_map { |path| File.read(path).scan(/\bLeasehold(?:::[A-Z]\w+)+/) }.uniq
    # The generated messages have no signatures.
    named -= %w[Leasehold::Contract]

    expect(named.size).to be > 10
    expect(Support::Signatures.builder.env.class_decls.keys.map(&:to_s)).to include(*named.map { |name| "::#{name}" })
  end

  it "are valid throughout" do
    builder = Support::Signatures.builder
    ours = builder.env.class_decls.keys.select { |type| type.to_s.start_with?("::Leasehold") }
    expect(ours.size).to be > 60
    ours.each { |type| builder.build_singleton(type) && builder.build_instance(type) }
  end
end
