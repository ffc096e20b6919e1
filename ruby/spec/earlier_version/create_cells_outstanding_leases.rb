# frozen_string_literal: true

# The gem's first migration, as its generator wrote it on Rails 6.1. It calls methods of the gem.
class EarlierCreateCellsOutstandingLeases < ActiveRecord::Migration[6.1]
  def up
    create_table :cells_outstanding_leases, id: false do |table|
      table.column :uuid, :uuid, null: false, primary_key: true
      table.column :created_at, "timestamp with time zone", null: false, index: true
      table.column :updated_at, "timestamp with time zone", null: false
    end
    execute Leasehold::LeaseTable.guard_sql

    create_table :cells_claims_verifications, id: false do |table|
      table.column :model, :text, null: false, primary_key: true
      table.column :checkpoint, :text
      table.column :updated_at, "timestamp with time zone", null: false
    end
  end

  def down
    drop_table :cells_claims_verifications
    drop_table :cells_outstanding_leases
    execute Leasehold::LeaseTable.unguard_sql
  end
end
