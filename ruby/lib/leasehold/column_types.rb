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

    class << self
      # Whether rows can be told by such a column.
      def key?(column)
        KEYS.include?(column.type) && !rewritten?(column)
      end

      # Whether such a column's values can be claimed.
      def value?(column)
        VALUES.include?(column.type) && !rewritten?(column)
      end

      private

      def rewritten?(column)
        column.sql_type.match?(REWRITTEN)
      end
    end
  end
end
