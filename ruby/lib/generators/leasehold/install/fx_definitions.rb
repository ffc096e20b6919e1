# frozen_string_literal: true

require_relative "statements"

module Leasehold
  module Generators
    # The commit guard for the gem fx, which keeps functions and triggers in `db/schema.rb`. fx reads their SQL
    # from `db/functions` and `db/triggers`, in files with a version (fx 0.11.0, lib/fx/definition.rb:26).
    module FxDefinitions
      include Statements

      NEEDS_FX = "the migration needs the gem fx: add `gem \"fx\"` to the Gemfile before you run it"
      private_constant :NEEDS_FX

      # Adds the option to a generator.
      def self.included(generator)
        generator.class_option :fx, type: :boolean, default: false, desc: "Keep the commit guard in files of the gem fx"
      end

      # @return [String] the statements that create the commit guard, indented for the migration
      def guard_statement
        fx? ? create_statements : super
      end

      # @return [String] the statement that removes the commit guard's function
      def unguard_statement
        fx? ? "drop_function :#{LeaseTable::GUARD}".indent(4) : super
      end

      # fx's own `update_function` drops the function, which PostgreSQL refuses while the trigger exists.
      #
      # @return [String] the statements that replace the commit guard, whether or not the database has it
      def replace_statement
        fx? ? "#{statement("execute <<~SQL", "#{DROP_GUARD.indent(2)}SQL")}\n#{create_statements}" : super
      end

      private

      # Returns true with `--fx`, or if the application has the commit guard's files already.
      def fx?
        options[:fx] || last_version.positive?
      end

      # Writes files with the present SQL, unless those of the last version have it.
      def write_definitions
        say(NEEDS_FX) unless defined?(::Fx)
        version = definition_version
        create_file definition("functions", version), LeaseTable.guard_function_sql
        create_file definition("triggers", version), LeaseTable.guard_trigger_sql
        @written_version = version
      end

      def create_statements
        version = @written_version || definition_version
        ["create_function :#{LeaseTable::GUARD}, version: #{version}",
         "create_trigger :#{LeaseTable::GUARD}, on: :#{LeaseTable::NAME}, version: #{version}"].join("\n").indent(4)
      end

      # Returns the version of the files that have the present SQL, or that are to be written with it.
      def definition_version
        definitions_current? ? last_version : last_version + 1
      end

      # Returns true if the files of the last version have the present SQL.
      def definitions_current?
        last = { "functions" => LeaseTable.guard_function_sql, "triggers" => LeaseTable.guard_trigger_sql }
        last.all? do |directory, sql|
          path = File.join(destination_root, definition(directory, last_version))
          File.file?(path) && File.read(path).split == sql.split
        end
      end

      # @return [Integer] the last version of the commit guard's function; 0 if there is none
      def last_version
        paths = Dir[File.join(destination_root, "db/functions/#{LeaseTable::GUARD}_v*.sql")]
        paths.map { |path| path[/_v(\d+)\.sql\z/, 1].to_i }.max || 0
      end

      def definition(directory, version)
        format("db/%s/%s_v%02d.sql", directory, LeaseTable::GUARD, version)
      end
    end
  end
end
