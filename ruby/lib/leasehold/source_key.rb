# frozen_string_literal: true

module Leasehold
  # A row's primary key as the bytes that stand for it in claims, and back.
  class SourceKey
    # @param model [Class]
    def initialize(model)
      @model = model
      # The column's, not the attribute's: rows are ordered by it.
      @type = model.columns_hash[model.primary_key]&.type
    end

    # @param key [Integer, String]
    # @raise [Error::Invalid] a row with this key can't be claimed for
    # @return [String] bytes, in the keys' order
    def encode(key)
      raise Error::Invalid.new("it has one once it is saved", code: "INVALID_UPDATE") if key.nil?

      # A text stands for itself, even if it reads as a UUID. A UUID may be written in more than one way.
      return key.to_s.b if text?

      Native.encode_source_id(@type == :uuid ? spell_uuid([key.delete("{}-")].pack("H*")) : key)
    rescue Error::Invalid => error
      raise Error::Invalid.new("`#{@model.name}##{@model.primary_key}` is #{key || "nil"}: #{error.message}", code: error.code)
    end

    # @param source_id [String] bytes
    # @return [Integer, String] the key
    def decode(source_id)
      case @type
      when :integer then source_id.unpack1("Q>")
      when :uuid then spell_uuid(source_id)
      else source_id.dup.force_encoding(Encoding::UTF_8)
      end
    end

    # What rows are ordered by, so that their order is that of source ids: texts by their bytes.
    #
    # @return [Arel::Nodes::SqlLiteral]
    def column
      name = "#{@model.quoted_table_name}.#{@model.connection.quote_column_name(@model.primary_key)}"
      Arel.sql(text? ? %(#{name} COLLATE "C") : name)
    end

    # Whether keys are texts, which stand for themselves.
    def text?
      !%i[integer uuid].include?(@type)
    end

    # @param bytes [String] 16 of them
    def spell_uuid(bytes)
      bytes.unpack("H8H4H4H4H12").join("-")
    end
    private :spell_uuid

    # The rows of a relation in a range of source ids, in their order.
    #
    # @param after [String, nil] exclusive
    # @param upto [String, nil] inclusive
    def range(relation, after, upto)
      # Keys below 0 have no bytes, so what has one is never claimed.
      relation = relation.where("#{column} >= 0") if @type == :integer && !after
      relation = relation.where("#{column} > ?", decode(after)) if after
      relation = relation.where("#{column} <= ?", decode(upto)) if upto
      relation.reorder(column)
    end
  end
end
