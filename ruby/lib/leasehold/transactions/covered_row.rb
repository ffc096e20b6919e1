# frozen_string_literal: true

require "json"

module Leasehold
  module Transactions
    # The values that a save or destroy has written into the claimed columns of a row. Immediately before COMMIT they are told to
    # the database, which refuses all other changes of these columns in a strict capture ({ClaimsCapture}).
    #
    # The text is in a setting of the transaction: it needs no row and no right, and a rollback to a savepoint takes it back.
    class CoveredRow
      include ActiveRecordCompat::Participant

      # Appends lines. A table's name is resolved by the search path of the session, as that of the model's statements is.
      TELL = <<~'SQL'.squish
        SELECT FROM set_config('leasehold.covered_claims', concat_ws(E'\n',
          nullif(current_setting('leasehold.covered_claims', true), ''),
          (SELECT string_agg(json_build_array(nspname || '.' || relname, line->1, line->2)::text, E'\n' ORDER BY place)
            FROM json_array_elements(convert_from($1, 'UTF8')::json) WITH ORDINALITY AS lines(line, place)
              JOIN pg_class ON pg_class.oid = (line->>0)::regclass JOIN pg_namespace ON pg_namespace.oid = relnamespace)
        ), true)
      SQL
      # The type of a column whose values have trailing spaces.
      PADDED = /\Acharacter\((\d+)\)\z/.freeze
      # A decimal with all of its digits, which a float lacks. JSON has it as a number.
      Decimal = Struct.new(:digits) { def to_json(*) = digits }
      private_constant :TELL, :PADDED, :Decimal

      class << self
        # Registers the row of an INSERT or UPDATE. If it has a new primary key, the row of the old key counts as deleted.
        #
        # @param written [Array<String>] the columns
        # @return [void]
        def wrote(record, written)
          columns = columns_of(record.class)
          moved = !record.id_in_database.nil? && record.id != record.id_in_database
          deleted(record) if moved
          columns &= written unless moved
          register(record, record.id, columns.to_h { |column| [column, spelled(record, column)] })
        end

        # Registers the row of a DELETE.
        #
        # @return [void]
        def deleted(record)
          register(record, record.id_in_database, columns_of(record.class).index_with(nil))
        end

        # Tells the database all rows of a transaction that is about to COMMIT.
        #
        # @param transaction [ActiveRecord::ConnectionAdapters::Transaction] the innermost one of its connection
        # @return [void]
        def tell(transaction)
          rows = ActiveRecordCompat.participants(transaction, CoveredRow)
          return if rows.empty?

          # A binary parameter: ActiveRecord logs its size only (V09).
          text = ActiveRecord::Relation::QueryAttribute.new("rows", JSON.generate(rows.map(&:line)), ActiveModel::Type::Binary.new)
          transaction.connection.exec_query(TELL, "Leasehold", [text])
        end

        private

        def register(record, key, values)
          return if values.empty?

          connection = ActiveRecordCompat.held_connection(record.class)
          line = [connection.quote_table_name(record.class.table_name), [spelled_key(record.class, key)], values]
          ActiveRecordCompat.add_participant(connection, new(line))
        end

        # @return [Array<String>] the columns that claims of the table are built from
        def columns_of(model)
          Models.sharing_table(model).flat_map(&:cells_claims_columns).uniq
        end

        def spelled(record, column)
          spell(record.class, column, ActiveRecordCompat.value_for_database(record, column)) if record.has_attribute?(column)
        end

        def spelled_key(model, key)
          spell(model, model.primary_key, model.type_for_attribute(model.primary_key).serialize(key))
        end

        # Returns the value in the spelling of PostgreSQL's `to_json`.
        def spell(model, column, value)
          case value
          when ActiveModel::Type::Binary::Data then "\\x#{value.hex}"
          when BigDecimal then value.finite? ? Decimal.new(value.to_s("F")) : value.to_s
          when Date then value.iso8601
          else spell_text(model.columns_hash[column], value)
          end
        end

        def spell_text(column, value)
          return address(value) if column&.type == :inet

          length = column&.sql_type.to_s[PADDED, 1]
          length && value ? value.ljust(Integer(length)) : value
        end

        # ActiveRecord writes the mask of each address (connection_adapters/postgresql/oid/cidr.rb:25 / 25), PostgreSQL not that of a
        # single one.
        def address(value)
          value&.to_s&.then { |text| text.delete_suffix(text.include?(":") ? "/128" : "/32") }
        end
      end

      # @return [Array] the quoted name of the table, the primary key, and the values by column
      attr_reader :line

      # @param line [Array]
      def initialize(line)
        @line = line
      end
    end
  end
end
