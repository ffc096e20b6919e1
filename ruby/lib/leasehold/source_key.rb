# frozen_string_literal: true

module Leasehold
  # Converts a row's primary key to the source id in claims (bytes), and back.
  class SourceKey
    # @param model [Class]
    def initialize(model)
      @model = model
      # The type of the column, not of the attribute: the database orders rows by the column.
      @type = model.columns_hash[model.primary_key]&.type
    end

    # @param key [Integer, String]
    # @raise [Error::Invalid] if the key is nil or has no source id
    # @return [String] bytes that sort in the order of the keys
    def encode(key)
      raise Error::MissingPrimaryKey.new("save the record first", code: "INVALID_UPDATE") if key.nil?

      # A text key is its own source id, even if it looks like a UUID. A UUID key has several
      # spellings, so it is formatted first.
      return key.to_s.b if text?

      Native.encode_source_id(@type == :uuid ? format_uuid([key.delete("{}-")].pack("H*")) : key)
    rescue Error::Invalid => error
      raise error.class.new("`#{@model.name}##{@model.primary_key}` is #{key || "nil"}: #{error.message}", code: error.code)
    end

    # @param source_id [String] bytes
    # @return [Integer, String] the key
    def decode(source_id)
      case @type
      when :integer then source_id.unpack1("Q>")
      when :uuid then format_uuid(source_id)
      else source_id.dup.force_encoding(Encoding::UTF_8)
      end
    end

    # Returns the SQL expression by which rows are ordered so that their source ids ascend. Text
    # keys are ordered by their bytes (collation "C").
    #
    # @return [Arel::Nodes::SqlLiteral]
    def order_column
      column = ActiveRecordCompat.with_connection(@model.connection_pool) do |connection|
        connection.quote_column_name(@model.primary_key)
      end
      name = "#{@model.quoted_table_name}.#{column}"
      Arel.sql(text? ? %(#{name} COLLATE "C") : name)
    end

    # Returns true if the keys are texts, which are their own source ids.
    def text?
      !%i[integer uuid].include?(@type)
    end

    # @param bytes [String] 16 of them
    def format_uuid(bytes)
      bytes.unpack("H8H4H4H4H12").join("-")
    end
    private :format_uuid

    # Restricts a relation to a range of source ids, and orders it by them.
    #
    # @param after [String, nil] exclusive
    # @param upto [String, nil] inclusive
    def range(relation, after, upto)
      # A negative key has no source id, so its row is never claimed.
      relation = relation.where("#{order_column} >= 0") if @type == :integer && !after
      relation = relation.where("#{order_column} > ?", decode(after)) if after
      relation = relation.where("#{order_column} <= ?", decode(upto)) if upto
      relation.reorder(order_column)
    end
  end
end
