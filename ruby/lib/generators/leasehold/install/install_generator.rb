# frozen_string_literal: true

require "rails/generators"
require "rails/generators/active_record"

module Leasehold
  module Generators
    # `rails generate leasehold:install`: adds an initializer, and the migration that creates the
    # lease table.
    class InstallGenerator < ::Rails::Generators::Base
      include ::ActiveRecord::Generators::Migration

      source_root File.expand_path("templates", __dir__)
      desc "Adds an initializer and the migration that creates the lease table."

      class_option :database, type: :string, aliases: %w[--db], desc: "The database for the migration, of several"

      def create_initializer
        template "initializer.rb.tt", "config/initializers/leasehold.rb"
      end

      def create_lease_migration
        migration_template "migration.rb.tt", File.join(db_migrate_path, "create_cells_outstanding_leases.rb")
      end

      # `db/schema.rb` cannot express the table's trigger (R04), `db/structure.sql` can.
      def keep_schema_as_sql
        environment "config.active_record.schema_format = :sql"
      end
    end
  end
end
