# frozen_string_literal: true

module Leasehold
  # The models that claim attributes, by name, so that a class that is loaded anew takes its own place.
  module Models
    # No model of that name claims anything.
    class Unknown < ArgumentError; end

    @names = Set.new
    @lock = Mutex.new

    class << self
      # Adds a model. One without a name can't be verified: nobody could find it again.
      def add(model)
        @lock.synchronize { @names << model.name } if model.name
      end

      # All of the application, in the order of their names.
      #
      # @return [Array<String>]
      def names
        load_all
        @lock.synchronize { @names.to_a.sort }
      end

      # The model of that name.
      #
      # @raise [Unknown] it claims nothing; the message names those that do, and first the one that is meant
      def fetch(name)
        # Classes below it (STI) may claim more.
        load_all
        model = name.to_s.safe_constantize
        return model if claims?(model)

        raise Unknown, "`#{name}` #{model ? "claims nothing" : "is no model"}: #{suggestion(name)}"
      end

      # A model and the classes below it whose rows are in its table (STI): one with a table of its own has nothing to do with it.
      #
      # @return [Array<Class>]
      def of_table(model)
        [model, *below(model)]
      end

      # @return [Array<Class>] those of {of_table} but the model itself
      def below(model)
        model.descendants.select { |one| one.table_name == model.table_name }
      end

      # Refuses an attribute that neither the model nor a class below it (STI) claims.
      #
      # @raise [ArgumentError] naming those that are claimed
      # @return [Symbol] its name
      def attribute(model, name)
        return name.to_sym if model.cells_claims_attributes.key?(name.to_sym)

        claimed = of_table(model).flat_map { |one| one.cells_claims_attributes.keys }.uniq
        return name.to_sym if claimed.include?(name.to_sym)

        known = claimed.map { |one| "`#{one}`" }.join(", ")
        raise ArgumentError, "`#{model.name}##{name}` is not claimed: name one of #{known}"
      end

      # Refuses a model whose claims can't be told from another's: each would give up what only the other has rows for.
      #
      # @raise [Error::Misconfigured] naming both
      def check_apart(model)
        others = names.map(&:safe_constantize).select { |one| claims?(one) && one.base_class != model.base_class }
        other = others.find { |one| mixed?(one, model) }
        return unless other

        raise Error::Misconfigured, "`#{model.name}` and `#{other.name}` claim the same bucket type under one source type: " \
                                    "say another `source_type:` in the `cells_claims_metadata` of one of them"
      end

      # Refuses a model that no verification will ever get through, since it says what its table can't have.
      #
      # @raise [Error::Misconfigured]
      def check(model)
        check_apart(model)
        model.cells_claims_table if model.cells_claims_enabled.any?
      end

      private

      def suggestion(name)
        return "no model includes `Cells::Claimable` and says `cells_claims_attribute`" if names.empty?

        meant = similar(name)
        "#{"did you mean `#{meant}`? " if meant}those that claim: #{names.join(', ')}"
      end

      # Ruby can be run without what knows.
      def similar(name)
        return names.find { |one| one.casecmp?(name.to_s) } unless defined?(DidYouMean::SpellChecker)

        DidYouMean::SpellChecker.new(dictionary: names).correct(name.to_s).first
      end

      def claims?(model)
        model.respond_to?(:cells_claims_attributes) && model.cells_claims_attributes.any?
      end

      # A table may have several models.
      def mixed?(one, other)
        return false if [one, other].map { |model| [model.connection_pool, model.table_name] }.uniq.one?

        types = [one, other].map { |model| model.cells_claims_attributes.each_value.map(&:type) }
        types.inject(:&).any? && source_type(one) == other.cells_claims_source_type
      end

      # None where the model does not say: it claims nothing then, and is told so itself.
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
