# frozen_string_literal: true

require "rails/generators"
require "rails/generators/active_record"

module Leasehold
  module Generators
    # `rails generate leasehold:install`: an initializer, and the migration for the table of leases.
    class InstallGenerator < ::Rails::Generators::Base
      include ::ActiveRecord::Generators::Migration

      source_root File.expand_path("templates", __dir__)
      desc "Adds an initializer, and the table of the leases that transactions are committed under."

      class_option :database, type: :string, aliases: %w[--db], desc: "The database for the migration, of several"

      def create_initializer
        template "initializer.rb.tt", "config/initializers/leasehold.rb"
      end

      def create_lease_migration
        migration_template "migration.rb.tt", File.join(db_migrate_path, "create_cells_outstanding_leases.rb")
      end

      # The trigger is not part of what `db/schema.rb` can say.
      def keep_schema_as_sql
        environment "config.active_record.schema_format = :sql"
      end
    end
  end
end
