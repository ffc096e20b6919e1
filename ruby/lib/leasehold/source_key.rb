# frozen_string_literal: true

module Leasehold
  # Converts a row's primary key to the source id in claims (bytes), and back.
  class SourceKey
    # A UUID in PostgreSQL's spelling. Other spellings are ordinary texts, so that no two keys have one source id.
    UUID_TEXT = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    # Sizes of source ids in bytes, by the key's type. The source id of a text may have any size.
    BYTES = { integer: 8, uuid: 16 }.freeze
    # The most bytes of a source id, of whatever form.
    MAX_BYTES = 128
    # The greatest distance of numbers, also of UUIDs as numbers, that share a range.
    SPAN_GAP = 100
    # The source id of the largest number that PostgreSQL's type bigint has.
    MAX_INTEGER = [2**63 - 1].pack("Q>").freeze
    private_constant :UUID_TEXT, :BYTES, :MAX_BYTES, :SPAN_GAP, :MAX_INTEGER

    # @param model [Class]
    def initialize(model)
      @model = model
      # The type of the column, not of the attribute: the database orders rows by the column.
      @type = model.columns_hash[model.primary_key]&.type
      @packs_uuids = text? && Leasehold.configuration.uuid_texts_as_bytes
    end

    # @param key [Integer, String]
    # @raise [Error::Invalid] if the key is nil or has no source id
    # @return [String] bytes that sort in the order of the keys
    def encode(key)
      raise Error::MissingPrimaryKey.new("save the record first", code: "INVALID_UPDATE") if key.nil?

      # A UUID key has several spellings, so it is formatted first. A text key has only the one that was written.
      return encode_text(key.to_s) if text?

      Native.encode_source_id(@type == :uuid ? format_uuid([key.delete("{}-")].pack("H*")) : key)
    rescue Error::Invalid => error
      raise error.class.new("`#{@model.name}##{@model.primary_key}` is #{key || "nil"}: #{error.message}", code: error.code)
    end

    # @param source_id [String] bytes
    # @return [Integer, String, nil] the key; nil if no key has this source id
    def decode(source_id)
      return unless source_id == last_upto(source_id)

      case @type
      when :integer then source_id.unpack1("Q>")
      when :uuid then format_uuid(source_id)
      else packed_uuid?(source_id) ? format_uuid(source_id) : source_id.dup.force_encoding(Encoding::UTF_8)
      end
    end

    # Returns the SQL expression by which rows are ordered so that their source ids ascend. Text
    # keys are ordered by their bytes (collation "C").
    #
    # @return [Arel::Nodes::SqlLiteral]
    def order_column
      name = quoted_name
      return Arel.sql(text? ? %(#{name} COLLATE "C") : name) unless packs_uuids?

      packed = "decode(replace(#{name}, '-', ''), 'hex')"
      Arel.sql("CASE WHEN #{name} ~ '^#{UUID_TEXT}$' THEN #{packed} ELSE convert_to(#{name}, 'UTF8') END")
    end

    # Restricts a relation to a range of source ids, and orders it by them. The bounds may be source ids that no
    # key has.
    #
    # @param after [String, nil] exclusive
    # @param upto [String, nil] inclusive
    # @param from [String, nil] inclusive, the source id of a key
    def range(relation, after, upto, from: nil)
      after &&= last_upto(after)
      upto = last_upto(upto) || (return relation.none) if upto
      relation = with_source_id(relation, after)
      relation = relation.where(order_column.gt(parameter(after))) if after
      relation = relation.where(order_column.gteq(parameter(from))) if from
      relation = relation.where(order_column.lteq(parameter(upto))) if upto
      relation.reorder(order_column)
    end

    # Returns ranges that have these source ids, and few others between them.
    #
    # @param source_ids [Array<String>] sorted, of keys
    # @return [Array<Array(String, String)>] bounds, exclusive and inclusive; the first one is nil for no bound
    def spans(source_ids)
      near = ->(one, other) { !text? && number(other) - number(one) <= SPAN_GAP }
      source_ids.slice_when { |one, other| !near.call(one, other) }.map { |span| [before(span.first), span.last] }
    end

    # Returns true if the keys are texts.
    def text?
      !%i[integer uuid].include?(@type)
    end

    # Returns true if a text that looks like a UUID has the UUID's bytes as its source id. All other texts are
    # their own source ids.
    def packs_uuids?
      @packs_uuids
    end

    private

    def quoted_name
      column = ActiveRecordCompat.with_connection(@model.connection_pool) do |connection|
        connection.quote_column_name(@model.primary_key)
      end
      "#{@model.quoted_table_name}.#{column}"
    end

    def encode_text(text)
      return text.b unless packs_uuids?
      return [text.delete("-")].pack("H*") if text.match?(/\A#{UUID_TEXT}\z/o)
      return text.b unless text.bytesize == 16

      raise Error::Invalid.new("its 16 bytes are the source id of a UUID, use a key of another length", code: "INVALID_UPDATE")
    end

    def packed_uuid?(source_id)
      packs_uuids? && source_id.bytesize == 16
    end

    # @param bytes [String] 16 of them
    def format_uuid(bytes)
      bytes.unpack("H8H4H4H4H12").join("-")
    end

    def number(source_id)
      source_id.unpack1("H*").to_i(16)
    end

    # Returns a source id before this one, such that no other key's lies between. The text of a key is UTF-8, which never has the
    # byte 255.
    #
    # @return [String, nil] nil if no source id sorts before
    def before(source_id)
      return last_before(source_id, source_id.bytesize) unless text?

      *first, last = source_id.bytes
      first.push(last - 1) unless last.zero?
      first.push(255) if !last.zero? && first.size < MAX_BYTES
      first.pack("C*").presence
    end

    # Leaves out rows whose keys have no source id, which are never claimed.
    def with_source_id(relation, after)
      return relation.where("octet_length(#{quoted_name}) <> 16") if packs_uuids?

      @type == :integer && !after ? relation.where("#{order_column} >= 0") : relation
    end

    # Returns the last source id, up to this one, that a key can have; nil if no key's source id comes before.
    # The claims of a table may have source ids of another form, for example from an earlier type of its primary
    # key.
    def last_upto(source_id)
      bytes = BYTES[@type] or return source_id
      id = source_id.bytesize < bytes ? last_before(source_id, bytes) : source_id.b.byteslice(0, bytes)
      id && @type == :integer ? [id, MAX_INTEGER].min : id
    end

    # Returns the last source id of `bytes` bytes that sorts before a shorter one. The shorter id sorts before
    # all ids that begin with it. If it has only zero bytes, no id sorts before it, and the result is nil.
    def last_before(source_id, bytes)
      number = source_id.unpack1("H*").ljust(2 * bytes, "0").to_i(16)
      [format("%0*x", 2 * bytes, number - 1)].pack("H*") if number.positive?
    end

    # Returns a parameter to compare with {#order_column}. It has the primary key's name, by which
    # `filter_attributes` can hide it in the log; a literal would be in the logs of statements (V09).
    #
    # @return [Arel::Nodes::Node]
    def parameter(source_id)
      return bind(source_id, ActiveModel::Type::Binary.new) if packs_uuids?

      key = decode(source_id)
      return bind(key, ActiveModel::Type::String.new) unless @type == :integer

      # Without a cast PostgreSQL would give the parameter the column's type, which may be smaller.
      Arel::Nodes::InfixOperation.new("::", bind(key, ActiveModel::Type::BigInteger.new), Arel.sql("bigint"))
    end

    def bind(value, type)
      Arel::Nodes::BindParam.new(ActiveRecord::Relation::QueryAttribute.new(@model.primary_key, value, type))
    end
  end
end
