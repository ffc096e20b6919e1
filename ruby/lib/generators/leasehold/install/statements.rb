# frozen_string_literal: true

require "leasehold/rails"

module Leasehold
  module Generators
    # The SQL of the generated migration. It is written out, so the migration does the same with every later
    # version of the gem.
    module Statements
      # @return [String] the statement that creates the commit guard, indented for the migration
      def guard_statement
        statement("execute <<~SQL", "#{Leasehold::LeaseTable.guard_sql.indent(2)}SQL")
      end

      # @return [String] the statement that removes the commit guard's function
      def unguard_statement
        statement("execute \"#{Leasehold::LeaseTable.unguard_sql}\"")
      end

      # @return [String] the statements that replace the commit guard, whether or not the database has it
      def replace_statement
        statement("execute <<~SQL", "#{(DROP_GUARD + Leasehold::LeaseTable.guard_sql).indent(2)}SQL")
      end

      # The SQL that removes the commit guard if the database has it.
      DROP_GUARD = "DROP TRIGGER IF EXISTS #{LeaseTable::GUARD} ON #{LeaseTable::NAME};\nDROP FUNCTION IF EXISTS #{LeaseTable::GUARD}();\n"

      KEPT_SCHEMA = "`db/schema.rb` has no triggers: a database that is loaded from it accepts late COMMITs, and two cells may " \
                    "own one name. Load databases by `bin/rails db:migrate`, and check them by `bin/rails leasehold:doctor`."
      private_constant :DROP_GUARD, :KEPT_SCHEMA

      private

      # Rails 7.0 moved the setting from `ActiveRecord::Base` to `ActiveRecord` (activerecord 7.2.2.2,
      # active_record.rb:388).
      def schema_format
        ::ActiveRecord.respond_to?(:schema_format) ? ::ActiveRecord.schema_format : ::ActiveRecord::Base.schema_format
      end

      # strong_migrations refuses each `execute` that is not declared safe.
      def statement(*lines)
        lines = ["safety_assured do", *lines.map { |line| line.indent(2) }, "end"] if defined?(::StrongMigrations)
        lines.join("\n").indent(4)
      end
    end
  end
end
