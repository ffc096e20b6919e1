# frozen_string_literal: true

require "active_record"
require "leasehold/native"
require "leasehold/sqlstate_translation"

module Leasehold
  # Raised by a COMMIT that has changed claimed columns without a claim, in a table whose capture is strict (SQLSTATE LH010).
  # PostgreSQL has rolled the transaction back.
  class ChangeNotClaimed < ActiveRecord::StatementInvalid; end

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
    MODES = %i[report strict].freeze
    private_constant :MODES

    # Captures the changes that statements make past the callbacks of the table's models: raw SQL, `update_all`, `insert_all`,
    # COPY, cascades of foreign keys (Q06). A repeated call replaces the former capture.
    #
    # @param table [Symbol, String]
    # @param columns [Array<Symbol, String>, nil] the columns that claims are built from; nil for those of the table's models
    # @param mode [Symbol] `:report`: a relay verifies the claims of the changed rows after the COMMIT, and corrects them.
    #   `:strict`: the COMMIT is refused, with a {ChangeNotClaimed}, unless a save or a destroy of the model made the change
    # @raise [Error::Misconfigured] if no model claims columns of the table, or the setting `strict_claims` is off
    # @return [void]
    def cells_claims_capture(table, columns: nil, mode: :report)
      raise ArgumentError, "`mode` is unknown: pass `:report` or `:strict`" unless MODES.include?(mode)
      if mode == :strict && !Leasehold.configuration.strict_claims
        raise Error::Misconfigured, "a strict capture refuses the saves of processes without `strict_claims`: set it, deploy, then migrate"
      end

      names = (columns || ClaimsCapture.columns_of(table)).map { |name| quote(name.to_s) }
      execute("SELECT leasehold_capture_claims(#{quoted_regclass(table)}, ARRAY[#{names.join(", ")}]::text[], #{mode == :strict})")
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
  adapter = ActiveRecord::ConnectionAdapters::AbstractAdapter
  adapter.include(Leasehold::ClaimsCapture)
  # The adapter of PostgreSQL calls its superclass for states that it does not know.
  adapter.prepend(Leasehold::SqlstateTranslation.new(Leasehold::Native::CHANGE_NOT_CLAIMED => Leasehold::ChangeNotClaimed))
end
