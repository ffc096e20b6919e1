# frozen_string_literal: true

module Leasehold
  module Generators
    # The migrations that the application has, and names for further ones.
    module ApplicationMigrations
      private

      # @return [Array<String>] the paths of the application's migrations, the oldest first
      def migrations
        Dir[File.join(destination_root, db_migrate_path, "*.rb")].sort
      end

      # @return [Array<String>] the code of the migrations that match, the oldest first, with single spaces
      def migrations_with(pattern)
        migrations.map { |path| squeeze(File.read(path)) }.grep(pattern)
      end

      def squeeze(code)
        code.gsub(/\s+/, " ").strip
      end

      # Returns a name that no migration of the application has: ActiveRecord refuses a second migration of one name.
      def free_name(name)
        former = migrations.count { |path| File.basename(path).include?(name) }
        former.zero? ? name : "#{name}_#{former + 1}"
      end
    end
  end
end
