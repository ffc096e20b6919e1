# frozen_string_literal: true

require "rbs"

require "leasehold/client"

# Compares sig/ with the code: every public method has a signature, and no signature is without a
# method.
RSpec.describe "signatures" do
  def environment
    loader = RBS::EnvironmentLoader.new
    loader.add(path: Pathname(File.expand_path("../../sig", __dir__)))
    RBS::Environment.from_loader(loader).resolve_type_names
  end

  def signed_methods(builder, type)
    own = builder.build_instance(type).methods.select { |_, method| method.defined_in == type && method.public? }
    own.keys - [:initialize]
  end

  it "name exactly the public methods" do
    builder = RBS::DefinitionBuilder.new(env: environment)
    classes = [
      Leasehold::Client, Leasehold::Configuration, Leasehold::Error, Leasehold::Reconciliation, Leasehold::Verification
    ]
    classes.each do |described_type|
      type = RBS::TypeName.new(name: described_type.name.split("::").last.to_sym, namespace: RBS::Namespace.parse("::Leasehold"))
      expect(signed_methods(builder, type)).to match_array(described_type.public_instance_methods(false)), described_type.name
    end
  end

  it "are valid throughout" do
    builder = RBS::DefinitionBuilder.new(env: environment)
    ours = builder.env.class_decls.keys.select { |type| type.to_s.start_with?("::Leasehold") }
    expect(ours.size).to be > 40
    ours.each { |type| builder.build_singleton(type) && builder.build_instance(type) }
  end
end
