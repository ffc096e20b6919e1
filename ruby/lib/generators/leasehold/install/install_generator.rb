# frozen_string_literal: true

require "rails/generators"
require "rails/generators/active_record"
require_relative "fx_definitions"

module Leasehold
  module Generators
    # `rails generate leasehold:install`: adds an initializer, and the migration that creates the
    # lease table.
    class InstallGenerator < ::Rails::Generators::Base
      include ::ActiveRecord::Generators::Migration
      include FxDefinitions

      source_root File.expand_path("templates", __dir__)
      desc "Adds an initializer and the migration that creates the lease table."

      class_option :database, type: :string, aliases: %w[--db], desc: "The database for the migration, of several"

      class_option :skip_schema_format, type: :boolean, default: false, desc: "Keep `db/schema.rb`, which has no triggers"

      def create_initializer
        template "initializer.rb.tt", "config/initializers/leasehold.rb"
      end

      def create_guard_definitions
        write_definitions if fx?
      end

      def create_lease_migration
        migration_template "migration.rb.tt", File.join(db_migrate_path, "create_cells_outstanding_leases.rb")
      end

      # Switches the application to `db/structure.sql`: `db/schema.rb` cannot express the commit guard, which
      # is a trigger (R04). With the gem fx it can.
      def keep_schema_as_sql
        return if schema_format == :sql || fx?
        return say(KEPT_SCHEMA) if options[:skip_schema_format]

        say("The schema is kept in `db/structure.sql` from now on, because `db/schema.rb` has no triggers. " \
            "To keep `db/schema.rb`, run the generator with `--skip-schema-format`.")
        environment "config.active_record.schema_format = :sql"
      end
    end
  end
end
