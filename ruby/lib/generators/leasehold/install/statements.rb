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

      private

      # strong_migrations refuses each `execute` that is not declared safe.
      def statement(*lines)
        lines = ["safety_assured do", *lines.map { |line| line.indent(2) }, "end"] if defined?(::StrongMigrations)
        lines.join("\n").indent(4)
      end
    end
  end
end
