# frozen_string_literal: true

module Leasehold
  # The models that claim attributes, by name, so that a class that is loaded anew takes its own place.
  module Models
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
      # @raise [ArgumentError] it claims nothing
      def fetch(name)
        # Classes below it (STI) may claim more.
        load_all
        model = name.to_s.safe_constantize
        return model if model.respond_to?(:cells_claims_attributes) && model.cells_claims_attributes.any?

        raise ArgumentError, "`#{name}` claims nothing: name one of #{names.join(', ')}"
      end

      private

      def load_all
        ::Rails.application.eager_load! if defined?(::Rails.application) && ::Rails.application
      end
    end
  end
end
