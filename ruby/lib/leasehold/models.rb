# frozen_string_literal: true

module Leasehold
  # The registry of models that claim attributes. It keeps names, not classes, because code
  # reloading replaces classes.
  module Models
    # The name does not belong to a model with claims.
    class Unknown < ArgumentError; end
    # An argument of a declaration has the wrong class.
    class InvalidDeclaration < ArgumentError; end

    @names = Set.new
    # Maps each anonymous class to itself. Entries of classes that Ruby has freed disappear. Only `values` may be
    # listed: in Ruby 3.1.2, `keys` contains dead keys whose value lives (Bug #18586; gc.c:12225, `wmap_keys_i`).
    # If C code calls a method of a dead class, the global call cache keeps a freed entry: a later collection crashes.
    @anonymous = ObjectSpace::WeakMap.new
    @lock = Mutex.new

    class << self
      # Adds a model. An anonymous class is left out of {names}: a job could not find it again by its name.
      def add(model)
        @lock.synchronize { model.name ? @names << model.name : @anonymous[model] = model }
      end

      # @return [Set<Class>] all models of the application that claim attributes, with the anonymous ones
      def classes
        named = names.map(&:constantize)
        anonymous = @lock.synchronize { @anonymous.values }
        Set.new(named + anonymous)
      end

      # Returns the names of all models of the application that claim attributes, sorted. A class that was
      # renamed or removed while the process runs is left out.
      #
      # @return [Array<String>]
      def names
        load_all
        @lock.synchronize { @names.to_a }.select { |name| claims?(name.safe_constantize) }.sort
      end

      # @raise [Unknown] if the name belongs to no model with claims; the message suggests one
      # @return [Class] the model of this name
      def fetch(name)
        # Loads subclasses (STI) too, which may claim further attributes.
        load_all
        model = name.to_s.safe_constantize
        return model if claims?(model)

        raise Unknown, "`#{name}` #{model ? "claims nothing" : "is not a model"}: #{suggestion(name)}"
      end

      # @return [Array<Class>] the model and its subclasses whose rows are in its table (STI)
      def of_table(model)
        [model, *subclasses_in_table(model)]
      end

      # @return [Array<Class>] the model's subclasses whose rows are in its table (STI)
      def subclasses_in_table(model)
        model.descendants.select { |subclass| subclass.table_name == model.table_name }
      end

      # @return [Array<Class>] all classes with claims whose rows are in the model's table (STI): its base class,
      #   and that class's subclasses
      def sharing_table(model)
        [model.base_class, *model.base_class.descendants].select { |other| claims?(other) && other.table_name == model.table_name }
      end

      # Leaves out each model whose rows are compared by the verification of an ancestor in the same list (STI).
      #
      # @param names [Array<String>]
      # @yieldparam ancestor [Class] a model whose verification would cover others
      # @yieldreturn [Boolean] false if the ancestor is not verified; without a block, every ancestor counts as
      #   verified
      # @return [Array<String>]
      def without_covered(names)
        models = names.map { |name| fetch(name) }
        covering = models.select { |ancestor| models.any? { |model| covers?(ancestor, model) } }
        covering = covering.select { |ancestor| yield ancestor } if block_given?
        models.reject { |model| covering.any? { |ancestor| covers?(ancestor, model) } }.map(&:name)
      end

      # Checks that the model or one of its subclasses (STI) claims the attribute.
      #
      # @raise [Unknown] if none does; the message lists the claimed attributes
      # @return [Symbol] the attribute's name
      def attribute_name(model, name)
        # A task that is called without the attribute passes nil.
        symbol = name.to_s.to_sym
        return symbol if model.cells_claims_declarations.key?(symbol)

        claimed = of_table(model).flat_map { |claimable| claimable.cells_claims_declarations.keys }.uniq
        return symbol if claimed.include?(symbol)

        known = claimed.map { |attribute| "`#{attribute}`" }.join(", ")
        raise Unknown, "`#{model.name}##{name}` is not claimed: use one of #{known}"
      end

      # Refuses two models whose claims have the same bucket type and source type: the verification
      # of each would destroy the claims of the other's rows.
      #
      # @raise [Error::Misconfigured] if there are such models; the message names both
      def check_distinct(model)
        others = names.map(&:safe_constantize).select { |other| claims?(other) && other.base_class != model.base_class }
        other = others.find { |candidate| indistinguishable?(candidate, model) }
        return unless other

        raise Error::Misconfigured, "`#{model.name}` and `#{other.name}` claim the same bucket type for the same source type: " \
                                    "pass another `source_type:` to `cells_claims_metadata` in one of them"
      end

      # Refuses a model that cannot be verified, because a declaration does not fit its table.
      #
      # @raise [Error::Misconfigured]
      def check(model)
        check_distinct(model)
        model.cells_claims_table if model.cells_claims_enabled.any?
      end

      private

      def suggestion(name)
        return "include `Cells::Claimable` in a model and call `cells_claims_attribute`" if names.empty?

        meant = similar_name(name)
        "#{"did you mean `#{meant}`? " if meant}models with claims: #{names.join(', ')}"
      end

      # `DidYouMean` is absent if Ruby runs with `--disable-did_you_mean`.
      def similar_name(name)
        return names.find { |known| known.casecmp?(name.to_s) } unless defined?(DidYouMean::SpellChecker)

        DidYouMean::SpellChecker.new(dictionary: names).correct(name.to_s).first
      end

      def claims?(model)
        model.respond_to?(:cells_claims_declarations) && model.cells_claims_declarations.any?
      end

      # Returns true if the verification of the ancestor compares all rows of the model, which are in its table
      # (STI). That verification reads the rows of the ancestor's scope, and lists the claims of the ancestor's
      # source type.
      def covers?(ancestor, model)
        model < ancestor && model.table_name == ancestor.table_name &&
          model.cells_claims_scope_block.equal?(ancestor.cells_claims_scope_block) &&
          !source_type(model).nil? && source_type(model) == source_type(ancestor)
      end

      # Returns true if two models of different tables claim the same bucket type and source type. Models of one
      # table may share their claims.
      def indistinguishable?(model, other)
        return false if [model, other].map { |claimable| [claimable.connection_pool, claimable.table_name] }.uniq.one?

        types = [model, other].map { |claimable| claimable.cells_claims_declarations.each_value.map(&:type) }
        types.inject(:&).any? && source_type(model) == other.cells_claims_source_type
      end

      # Returns nil if the model has no source type. Such a model claims nothing, and its first save
      # reports the mistake.
      def source_type(model)
        model.cells_claims_source_type
      rescue Error::Misconfigured
        nil
      end

      def load_all
        ::Rails.application.eager_load! if defined?(::Rails.application) && ::Rails.application
      end
    end
  end
end
