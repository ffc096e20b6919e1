# frozen_string_literal: true

require "pathname"

module Support
  # Reads the signatures in sig/.
  module Signatures
    DIRECTORY = Pathname.new(File.expand_path("../../sig", __dir__))

    module_function

    # @return [RBS::DefinitionBuilder]
    def builder
      loader = RBS::EnvironmentLoader.new
      loader.add(path: DIRECTORY)
      RBS::DefinitionBuilder.new(env: RBS::Environment.from_loader(loader).resolve_type_names)
    end

    # @return [Array<Symbol>] the public instance methods that the module's own signature declares, without
    #   inherited methods and `initialize`
    def instance_methods_of(builder, described)
      own(builder.build_instance(type(described)), type(described)) - [:initialize]
    end

    # @return [Array<Symbol>] the public methods of the module itself that have a signature
    def singleton_methods_of(builder, described)
      own(builder.build_singleton(type(described)), type(described)) - [:new]
    end

    def own(definition, type)
      definition.methods.select { |_, method| method.defined_in == type && method.public? }.keys
    end

    def type(described)
      RBS::TypeName.new(name: described.name.split("::").last.to_sym, namespace: RBS::Namespace.parse("::#{described.name.rpartition('::').first}"))
    end

    private_class_method :own, :type
  end
end
