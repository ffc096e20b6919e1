# frozen_string_literal: true

module Leasehold
  # The column types that claims accept: a value read from the column must equal the value that was
  # written and claimed.
  module ColumnTypes
    # Types of primary keys. PostgreSQL can order each by the bytes of its source ids.
    KEYS = %i[integer uuid string text].freeze

    # Types of claimed values: texts that PostgreSQL stores unchanged, and types that ActiveRecord
    # itself casts to the stored form before a save.
    VALUES = %i[string text citext enum binary integer decimal float boolean date inet cidr].freeze

    # SQL types that ActiveRecord treats as texts, but that PostgreSQL pads or truncates.
    REWRITTEN = /\A(character\(|bpchar|"char"|name\z)/.freeze

    # The first object id that PostgreSQL assigns to user-defined types (`FirstNormalObjectId`,
    # access/transam.h).
    FIRST_USER_OID = 16_384

    class << self
      # Returns true if the column can be the primary key of a model with claims.
      def key?(model, column)
        KEYS.include?(column.type) && !rewritten?(model, column)
      end

      # Returns true if the values of the column can be claimed.
      def value?(model, column)
        VALUES.include?(column.type) && !rewritten?(model, column)
      end

      private

      def rewritten?(model, column)
        column.sql_type.match?(REWRITTEN) || base_type(model, column)&.match?(REWRITTEN)
      end

      # Returns the SQL type underlying a domain; nil for PostgreSQL's own types.
      def base_type(model, column)
        return if column.oid < FIRST_USER_OID

        sql = <<~SQL
          WITH RECURSIVE types AS (
            SELECT #{Integer(column.oid)}::oid AS type, NULL::integer AS modifier
            UNION ALL SELECT typbasetype, typtypmod FROM types JOIN pg_type ON oid = type WHERE typtype = 'd'
          )
          SELECT format_type(type, modifier) FROM types JOIN pg_type ON oid = type WHERE typtype <> 'd'
        SQL
        ActiveRecordCompat.with_connection(model.connection_pool) { |connection| connection.select_value(sql, "Leasehold") }
      end
    end
  end
end
