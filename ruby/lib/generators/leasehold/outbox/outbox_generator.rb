# frozen_string_literal: true

require "leasehold/native"
require "rails/generators"
require "rails/generators/active_record"
require_relative "../install/sql_migrations"

module Leasehold
  module Generators
    # `rails generate leasehold:outbox`: adds the migration that installs the outbox, so that requests and jobs exist exactly if
    # the transaction commits that submits them (Q14). It also installs the functions that capture changes of tables (Q06). If the
    # application's last migration of the outbox has another version's SQL, adds one that installs this version's over it.
    class OutboxGenerator < ::Rails::Generators::Base
      include ::ActiveRecord::Generators::Migration
      include SqlMigrations

      # Said if the application keeps `db/schema.rb`.
      SCHEMA_RB = "`db/schema.rb` has no functions: a database that is loaded from it has no outbox. Set " \
                  "`config.active_record.schema_format = :sql`, or load databases by `bin/rails db:migrate`."
      # Said if the application keeps `db/structure.sql`.
      STRUCTURE_SQL = "`db/structure.sql` has the outbox without the rows that it needs: load databases by `bin/rails db:migrate`."
      # The statement that each version of the outbox has.
      DEFINITION = /CREATE OR REPLACE FUNCTION leasehold_submit\(/
      private_constant :SCHEMA_RB, :STRUCTURE_SQL, :DEFINITION

      source_root File.expand_path("templates", __dir__)
      desc "Adds the migration that installs the outbox of queues in a PostgreSQL database."

      class_option :database, type: :string, aliases: %w[--db], desc: "The database for the migration, of several"

      def create_outbox_migration
        create_sql_migration("leasehold_outbox", DEFINITION, "outbox")
      end

      def advise_on_schema
        say(schema_format == :sql ? STRUCTURE_SQL : SCHEMA_RB)
      end

      def advise_on_next_steps
        say("Name the database in `config.outbox_databases`, and run `bin/rails leasehold:relay`.")
      end

      private

      def sql
        Native::OUTBOX_SQL + Native::CAPTURE_SQL + Native::CLAIMS_CAPTURE_SQL
      end

      # @return [String] the statements that remove the outbox
      def remove_statement
        statement("execute <<~'SQL'", "#{REMOVE.indent(2)}SQL")
      end

      # Functions are dropped first, because some have the type of a table's rows.
      REMOVE = <<~'SQL'
        DO $$
        DECLARE
          found regprocedure;
        BEGIN
          FOR found IN
            SELECT oid FROM pg_proc WHERE pronamespace = quote_ident(current_schema())::regnamespace AND proname ~
              '^leasehold_(submit|complete|fail|give_back|done|(outbox|claims|capture)_.*|capture|end_capture|end_claims_capture)$'
          LOOP
            EXECUTE format('DROP FUNCTION %s CASCADE', found);
          END LOOP;
        END
        $$;
        DROP TABLE leasehold_outbox, leasehold_outbox_part, leasehold_outbox_relay, leasehold_outbox_holder,
          leasehold_outbox_refused, leasehold_outbox_done, leasehold_captures, leasehold_claims_captures;
        DROP SEQUENCE leasehold_outbox_number, leasehold_capture_number;
      SQL
      private_constant :REMOVE
    end
  end
end
