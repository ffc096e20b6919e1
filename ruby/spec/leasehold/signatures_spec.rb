# frozen_string_literal: true

require "rbs"

require "leasehold/client"

# sig/ says what is there: each public method of what it describes, and no other.
RSpec.describe "signatures" do
  def environment
    loader = RBS::EnvironmentLoader.new
    loader.add(path: Pathname(File.expand_path("../../sig", __dir__)))
    RBS::Environment.from_loader(loader).resolve_type_names
  end

  def described(builder, type)
    own = builder.build_instance(type).methods.select { |_, method| method.defined_in == type && method.public? }
    own.keys - [:initialize]
  end

  it "are valid, and name every public method" do
    builder = RBS::DefinitionBuilder.new(env: environment)
    classes = [
      Leasehold::Client, Leasehold::Configuration, Leasehold::Error, Leasehold::Reconciliation, Leasehold::Verification
    ]
    classes.each do |one|
      type = RBS::TypeName.new(name: one.name.split("::").last.to_sym, namespace: RBS::Namespace.parse("::Leasehold"))
      expect(described(builder, type)).to match_array(one.public_instance_methods(false)), one.name
    end
  end

  it "are valid throughout" do
    builder = RBS::DefinitionBuilder.new(env: environment)
    ours = builder.env.class_decls.keys.select { |type| type.to_s.start_with?("::Leasehold") }
    expect(ours.size).to be > 40
    ours.each { |type| builder.build_singleton(type) && builder.build_instance(type) }
  end
end
