# frozen_string_literal: true

module Support
  # The outbox in the database of the specs.
  module Outbox
    module_function

    # Runs the generated migration.
    def install
      migration.migrate(:up)
    end

    # Runs it in the other direction.
    def remove
      migration.migrate(:down)
    end

    def migration
      require "rails/generators"
      require "generators/leasehold/outbox/outbox_generator"
      Dir.mktmpdir do |root|
        generator = Leasehold::Generators::OutboxGenerator.new([], { quiet: true }, destination_root: root)
        generator.invoke_all
        eval(File.read(Dir[File.join(root, "db/migrate/*.rb")].first)) # rubocop:disable Security/Eval
      end
      CreateLeaseholdOutbox.verbose = false
      CreateLeaseholdOutbox
    end
  end
end
