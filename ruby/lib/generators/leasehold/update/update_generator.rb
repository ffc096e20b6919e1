# frozen_string_literal: true

require "rails/generators"
require "rails/generators/active_record"
require_relative "../install/fx_definitions"

module Leasehold
  module Generators
    # `rails generate leasehold:update`: adds a migration that replaces the commit guard by that of this version
    # of the gem and of the present `commit_within_seconds`. Adds none if the application's last migration of
    # the guard has it already.
    class UpdateGenerator < ::Rails::Generators::Base
      include ::ActiveRecord::Generators::Migration
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
        migration_template "migration.rb.tt", File.join(db_migrate_path, "#{migration_name}.rb")
        say(KEPT_SCHEMA) unless schema_format == :sql || options[:skip_schema_format] || fx?
      end

      private

      # Returns true if the present SQL is in the last migration that creates the guard, or in the last files of
      # fx.
      def current?
        return definitions_current? if fx?

        defining = migrations.map { |path| squeeze(File.read(path)) }.grep(/CREATE CONSTRAINT TRIGGER #{LeaseTable::GUARD} /)
        defining.last&.include?(squeeze(LeaseTable.guard_sql)) || false
      end

      # @return [Array<String>] the paths of the application's migrations, the oldest first
      def migrations
        Dir[File.join(destination_root, db_migrate_path, "*.rb")].sort
      end

      def squeeze(code)
        code.gsub(/\s+/, " ").strip
      end

      # Returns a name that no migration of the application has: ActiveRecord refuses a second migration of one name.
      def migration_name
        updates = migrations.count { |path| File.basename(path).include?(NAME) }
        updates.zero? ? NAME : "#{NAME}_#{updates + 1}"
      end
    end
  end
end
