# frozen_string_literal: true

require "leasehold/native"
require "rails/generators"
require "rails/generators/active_record"
require_relative "../install/sql_migrations"

module Leasehold
  module Generators
    # `rails generate leasehold:guard`: adds the migration that installs the guard of locks, so that a transaction
    # under a passed fence can't commit (K18). If the application's last migration of the guard has another version's
    # SQL, adds one that installs this version's over it.
    class GuardGenerator < ::Rails::Generators::Base
      include ::ActiveRecord::Generators::Migration
      include SqlMigrations

      # Said if the application keeps `db/schema.rb`.
      SCHEMA_RB = "`db/schema.rb` has no functions and no triggers: in a database that is loaded from it, `guard!` raises, because " \
                  "`leasehold_guard` is missing. Set `config.active_record.schema_format = :sql`, or load databases by " \
                  "`bin/rails db:migrate`."
      # Said if the application keeps `db/structure.sql`.
      STRUCTURE_SQL = "`db/structure.sql` keeps the guard with its functions and its trigger."
      FUNCTIONS = ["leasehold_guard(text, bigint, interval)", "leasehold_guard(text, bigint, interval, integer)",
                   "leasehold_guard_check_time()", "leasehold_guard_check_slot_time()"].freeze
      # The statement that each version of the guard has.
      DEFINITION = /CREATE OR REPLACE FUNCTION leasehold_guard\(/
      private_constant :SCHEMA_RB, :STRUCTURE_SQL, :FUNCTIONS, :DEFINITION

      source_root File.expand_path("templates", __dir__)
      desc "Adds the migration that installs the guard of locks in a PostgreSQL database."

      class_option :database, type: :string, aliases: %w[--db], desc: "The database for the migration, of several"

      def create_guard_migration
        create_sql_migration("leasehold_guards", DEFINITION, "guard")
      end

      def advise_on_schema
        say(schema_format == :sql ? STRUCTURE_SQL : SCHEMA_RB)
      end

      private

      def sql
        Native::GUARD_SQL
      end

      # @return [String] the statements that remove the guard
      def remove_statement
        statement("execute \"DROP FUNCTION #{FUNCTIONS.join(", ")}\"")
      end
    end
  end
end
