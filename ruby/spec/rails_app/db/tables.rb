# frozen_string_literal: true

# The application's tables, and the lease tables as the generated migration creates them.
module RailsApp
  module Tables
    TEMPLATE = File.expand_path("../../../lib/generators/leasehold/install/templates/migration.rb.tt", __dir__)

    module_function

    def create
      on(ActiveRecord::Base) do
        create_table :users do |table|
          table.string :username, null: false
          table.timestamps
        end
        create_table :emails do |table|
          table.string :email, null: false, index: { unique: true }
          table.bigint :user_id, null: false
          table.timestamps
        end
        create_table :routes do |table|
          table.string :path, null: false
          table.bigint :user_id, null: false
          table.timestamps
        end
      end
      on(KeysRecord) do
        create_table :keys do |table|
          table.string :fingerprint
          table.bigint :user_id
          table.timestamps
        end
      end
    end

    def on(base, &tables)
      ActiveRecord::Migration.suppress_messages do
        migration = ActiveRecord::Migration[6.1].new
        connection = base.connection
        migration.define_singleton_method(:connection) { connection }
        migration.instance_eval(&tables)
        leases = lease_migration.new
        leases.define_singleton_method(:connection) { connection }
        leases.up
      end
    end

    def lease_migration
      return CreateCellsOutstandingLeases if defined?(CreateCellsOutstandingLeases)

      require "generators/leasehold/install/statements"
      template = Object.new.extend(Leasehold::Generators::Statements).instance_eval { binding }
      Object.class_eval(ERB.new(File.read(TEMPLATE)).result(template))
      CreateCellsOutstandingLeases
    end
  end
end
