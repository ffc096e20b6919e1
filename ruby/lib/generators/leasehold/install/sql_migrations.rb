# frozen_string_literal: true

require_relative "application_migrations"
require_relative "statements"

module Leasehold
  module Generators
    # Migrations that install SQL of the engine. If the application's last one has another version's SQL, a further one installs
    # this version's over it. A generator that includes this module has the templates `migration.rb.tt` and `update.rb.tt`.
    module SqlMigrations
      include ApplicationMigrations
      include Statements

      CURRENT = "the migrations have the %s of this version: nothing to update"
      private_constant :CURRENT

      private

      # @param name [String] the end of the migrations' names
      # @param definition [Regexp] a statement that each version has
      # @param subject [String] for the message
      def create_sql_migration(name, definition, subject)
        newest = migrations_with(definition).last
        return say(format(CURRENT, subject)) if newest&.include?(squeeze(sql))
        return add_migration("migration", "create_#{name}") unless newest

        add_migration("update", free_name("update_#{name}"))
      end

      def add_migration(template, name)
        migration_template "#{template}.rb.tt", File.join(db_migrate_path, "#{name}.rb")
      end

      # @return [String] the statement that installs the SQL, indented for the migration
      def install_statement
        statement("execute <<~'SQL'", "#{sql.indent(2)}SQL")
      end
    end
  end
end
