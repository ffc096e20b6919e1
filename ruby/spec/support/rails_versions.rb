# frozen_string_literal: true

module Support
  # Declarations of the specs' models that differ between versions of Rails.
  module RailsVersions
    module_function

    # Makes the model write all columns. Rails 7.0 replaced `partial_writes` by two settings.
    def write_all_columns(model)
      return model.partial_writes = false unless model.respond_to?(:partial_updates=)

      model.partial_updates = model.partial_inserts = false
    end

    # Serializes the attribute as JSON. From Rails 7.1 on the coder must be a keyword argument.
    def serialize_as_json(model, attribute)
      since?("7.1") ? model.serialize(attribute, coder: JSON) : model.serialize(attribute, JSON)
    end

    # Declares an enumeration. Rails 8.0 takes its name only as a positional argument, 6.1 only as a keyword.
    def enumerate(model, attribute, values)
      since?("7.0") ? model.enum(attribute, values) : model.enum(attribute => values)
    end

    # Makes the attribute readonly. An assignment to it on a saved record changes the record in memory, but an UPDATE
    # does not write it. With the defaults of Rails 7.1 and later, such an assignment would raise.
    def ignore_writes(model, attribute)
      return model.attr_readonly(attribute) unless since?("7.1")

      raises = ActiveRecord.raise_on_assign_to_attr_readonly
      ActiveRecord.raise_on_assign_to_attr_readonly = false
      model.attr_readonly(attribute)
    ensure
      ActiveRecord.raise_on_assign_to_attr_readonly = raises if since?("7.1")
    end

    # Runs the block without errors for deprecated calls. Rails 8.1 deprecates its own adapter for Sidekiq,
    # because newer versions of Sidekiq contain one.
    def silence_deprecations(&block)
      since?("7.1") ? ::Rails.application.deprecators.silence(&block) : yield
    end

    def since?(version)
      Gem::Version.new(ActiveJob::VERSION::STRING) >= Gem::Version.new(version)
    end
  end
end
