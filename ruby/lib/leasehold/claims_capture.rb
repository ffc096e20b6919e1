# frozen_string_literal: true

require "active_record"

module Leasehold
  # Methods of migrations that capture the changes of claimed columns. The database needs the outbox: the migration of `rails
  # generate leasehold:outbox`.
  #
  # @example
  #   class CaptureClaims < ActiveRecord::Migration[7.2]
  #     def up
  #       cells_claims_capture :users, columns: %i[id username]
  #     end
  #
  #     def down
  #       end_cells_claims_capture :users
  #     end
  #   end
  module ClaimsCapture
    # Captures the changes that statements make past the callbacks of the table's models: raw SQL, `update_all`, `insert_all`,
    # COPY, cascades of foreign keys (Q06). A relay verifies the claims of the changed rows after the COMMIT, and corrects them. A
    # repeated call replaces the former capture.
    #
    # @param table [Symbol, String]
    # @param columns [Array<Symbol, String>, nil] the columns that claims are built from; nil for those of the table's models
    # @raise [Error::Misconfigured] if no model claims columns of the table
    # @return [void]
    def cells_claims_capture(table, columns: nil)
      names = (columns || ClaimsCapture.columns_of(table)).map { |name| quote(name.to_s) }
      execute("SELECT leasehold_capture_claims(#{quoted_regclass(table)}, ARRAY[#{names.join(", ")}]::text[])")
    end

    # Ends the capture.
    #
    # @return [void]
    def end_cells_claims_capture(table)
      execute("SELECT leasehold_end_claims_capture(#{quoted_regclass(table)})")
    end

    # @api private
    # @raise [Error::Misconfigured]
    # @return [Array<String>] the columns that the claims of the table's models are built from
    def self.columns_of(table)
      models = Models.names.map { |name| Models.fetch(name) }.select { |model| model.table_name == table.to_s }
      columns = models.flat_map(&:cells_claims_columns).uniq
      return columns if columns.any?

      raise Error::Misconfigured, "no model claims columns of `#{table}`: pass `columns:`"
    end

    private

    def quoted_regclass(table)
      "#{quote(quote_table_name(table.to_s))}::regclass"
    end
  end
end

ActiveSupport.on_load(:active_record) do
  ActiveRecord::ConnectionAdapters::AbstractAdapter.include(Leasehold::ClaimsCapture)
end
