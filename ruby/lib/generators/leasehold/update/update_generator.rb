# frozen_string_literal: true

require "rails/generators"
require "rails/generators/active_record"
require_relative "../install/application_migrations"
require_relative "../install/fx_definitions"

module Leasehold
  module Generators
    # `rails generate leasehold:update`: adds a migration that replaces the commit guard by that of this version
    # of the gem and of the present `commit_within_seconds`. Adds none if the application's last migration of
    # the guard has it already.
    class UpdateGenerator < ::Rails::Generators::Base
      include ::ActiveRecord::Generators::Migration
      include ApplicationMigrations
      include FxDefinitions

      NAME = "update_cells_outstanding_leases"
      CURRENT = "the migrations have the SQL of this version: nothing to update; if a database lacks the trigger, use `--force`"
      private_constant :NAME, :CURRENT

      source_root File.expand_path("templates", __dir__)
      desc "Adds a migration with the SQL of this version of the gem, if the migrations have another."

      class_option :database, type: :string, aliases: %w[--db], desc: "The database for the migration, of several"

      class_option :skip_schema_format, type: :boolean, default: false, desc: "Do not mention that `db/schema.rb` has no triggers"

      def create_update_migration
        return say(CURRENT) if current? && !options[:force]

        write_definitions if fx?
        migration_template "migration.rb.tt", File.join(db_migrate_path, "#{free_name(NAME)}.rb")
        say(KEPT_SCHEMA) unless schema_format == :sql || options[:skip_schema_format] || fx?
      end

      private

      # Returns true if the present SQL is in the last migration that creates the guard, or in the last files of
      # fx.
      def current?
        return definitions_current? if fx?

        migrations_with(/CREATE CONSTRAINT TRIGGER #{LeaseTable::GUARD} /).last&.include?(squeeze(LeaseTable.guard_sql)) || false
      end
    end
  end
end
