# frozen_string_literal: true

module Leasehold
  # What columns may be, so that what is read from them is what was written, which is what was claimed.
  module ColumnTypes
    # What keys are ordered by, and read off the bytes that stand for them.
    KEYS = %i[integer uuid string text].freeze

    # Texts that stay as they are, and what ActiveRecord itself brings to the form that is stored.
    VALUES = %i[string text citext enum binary integer decimal float boolean date inet cidr].freeze

    # Texts to ActiveRecord, which the database pads, or cuts off.
    REWRITTEN = /\A(character\(|bpchar|"char"|name\z)/.freeze

    # The number of the first type that is not PostgreSQL's own.
    FIRST_OWN_OID = 16_384

    class << self
      # Whether the rows of a model can be told by such a column.
      def key?(model, column)
        KEYS.include?(column.type) && !rewritten?(model, column)
      end

      # Whether such a column's values can be claimed for the rows of a model.
      def value?(model, column)
        VALUES.include?(column.type) && !rewritten?(model, column)
      end

      private

      def rewritten?(model, column)
        column.sql_type.match?(REWRITTEN) || base_type(model, column)&.match?(REWRITTEN)
      end

      # What a column is whose type is a domain.
      def base_type(model, column)
        return if column.oid < FIRST_OWN_OID

        model.connection.select_value(<<~SQL, "Leasehold")
          WITH RECURSIVE types AS (
            SELECT #{Integer(column.oid)}::oid AS type, NULL::integer AS modifier
            UNION ALL SELECT typbasetype, typtypmod FROM types JOIN pg_type ON oid = type WHERE typtype = 'd'
          )
          SELECT format_type(type, modifier) FROM types JOIN pg_type ON oid = type WHERE typtype <> 'd'
        SQL
      end
    end
  end
end
