# frozen_string_literal: true

module Leasehold
  # A row's primary key as the bytes that stand for it in claims, and back.
  class SourceKey
    # @return [String] bytes, in the keys' order
    def self.encode(key)
      Native.encode_source_id(key)
    end

    # @param model [Class]
    def initialize(model)
      @model = model
      @type = model.type_for_attribute(model.primary_key).type
    end

    # @param source_id [String] bytes
    # @return [Integer, String] the key
    def decode(source_id)
      case @type
      when :integer then source_id.unpack1("Q>")
      when :uuid then source_id.unpack("H8H4H4H4H12").join("-")
      else source_id.dup.force_encoding(Encoding::UTF_8)
      end
    end

    # What rows are ordered by, so that their order is that of source ids: texts by their bytes.
    #
    # @return [Arel::Nodes::SqlLiteral]
    def column
      name = "#{@model.quoted_table_name}.#{@model.connection.quote_column_name(@model.primary_key)}"
      Arel.sql(%i[integer uuid].include?(@type) ? name : %(#{name} COLLATE "C"))
    end

    # The rows of a relation in a range of source ids, in their order.
    #
    # @param after [String, nil] exclusive
    # @param upto [String, nil] inclusive
    def range(relation, after, upto)
      relation = relation.where("#{column} > ?", decode(after)) if after
      relation = relation.where("#{column} <= ?", decode(upto)) if upto
      relation.reorder(column)
    end
  end
end
