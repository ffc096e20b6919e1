# frozen_string_literal: true

module Leasehold
  class Verifier
    # Reads a model's rows in the order of their source ids, with the claims that each row should have.
    class RowReader
      # Attribute types that return a column's value as the database has it. A subclass or decorator of
      # these types may cast the value, so only exactly these classes count.
      UNCAST_TYPES = %w[
        ActiveModel::Type::Integer ActiveModel::Type::String ActiveModel::Type::ImmutableString ActiveRecord::Type::Text
        ActiveRecord::ConnectionAdapters::PostgreSQL::OID::Uuid
        ActiveRecord::ConnectionAdapters::PostgreSQL::OID::SpecializedString
      ].freeze
      # Rows, the database's time by which their age is judged, and the layout of claims in the columns.
      # Without a layout the rows contain their claims.
      RowPage = Struct.new(:rows, :now, :layout)
      # Subject id of a row that has none. No claim has this subject, and the report counts such rows.
      NO_SUBJECT = 0

      def initialize(model)
        @model = model
        @attributes = Models.of_table(model).flat_map(&:cells_claims_enabled).uniq
        @key = SourceKey.new(model)
        @updated_at = "updated_at" if model.column_names.include?("updated_at")
      end

      # Checks that the model's scope can be read page by page.
      #
      # @raise [Error::Misconfigured]
      def check
        scope = @model.cells_claims_scope
        problem = "a limit or an offset, which would apply to each page" if scope.limit_value || scope.offset_value
        problem ||= "a lock, for which writers of its rows would have to wait" if scope.lock_value
        misconfigured("`cells_claims_scope` of `#{@model.name}` has #{problem}: remove it") if problem
      end

      # Checks that the database's role may lock rows: any lock, FOR SHARE too, needs the privilege to update
      # a column (PostgreSQL 15 manual, SELECT: The Locking Clause).
      #
      # @raise [Error::Misconfigured]
      def check_lockable
        return if !table? || value("SELECT has_any_column_privilege(#{table_literal}, 'UPDATE')")

        name = @model.quoted_table_name
        misconfigured("the database's role may not lock rows of #{name}, by which verification recognises rows that are being " \
                      "written: run `GRANT UPDATE ON #{name}` for the role")
      end

      # @return [Array<Integer>] the bucket types that the rows claim; without those that are switched off,
      #   whose claims verification leaves alone
      def bucket_types
        @bucket_types ||= @attributes.map(&:type).uniq
      end

      # @return [String, nil] the source id of the row that is `rows` rows after `after`; nil if fewer follow
      def bound(after, rows)
        key = @key.range(@model.cells_claims_scope, after, nil).offset(rows - 1).limit(1).pick(@model.primary_key)
        key && @key.encode(key)
      end

      # Reads the rows of a range, for {#feed}. If other classes of the table (STI) may claim the same types,
      # also reads those of their rows for which the server has records.
      #
      # @param page [RecordPage] the server's records of the range
      # @param seconds_since_listing [Float] seconds since these records were requested
      # @return [RowPage]
      def read(after, upto, page, seconds_since_listing:)
        relation = range(after, upto)
        # V02: a row changed after its records were listed counts as recent, however long the listing took.
        now = clock - seconds_since_listing
        return RowPage.new(read_columns(relation), now, claim_layout) if readable_by_column?

        # `reselect` reads all columns of the table, even if the scope selects only some.
        rows = relation.reselect(@model.arel_table[Arel.star]).map { |record| row(record) }
        rows = (rows + rows_of_other_classes(page.records, rows)).sort_by(&:first) if shares_types?
        RowPage.new(rows, now)
      end

      # Feeds rows that were read to the session.
      #
      # @raise [Error::Misconfigured] if the scope returns a row twice
      def feed(session, batch)
        return session.rows(batch.rows, now: batch.now) unless batch.layout

        session.attributes(batch.rows, key: 0, updated_at: column_names.index(@updated_at), claims: batch.layout, now: batch.now)
      rescue Error::Internal => error
        raise unless error.code == "INVALID_ROWS" && duplicates?(batch.rows)

        misconfigured("`cells_claims_scope` of `#{@model.name}` returns a row more than once: add `distinct`")
      end

      # Reads single rows again and feeds them to the session. A row outside of the model's scope is fed without
      # claims, and a source id that no key has is left out. A row that an open transaction is writing counts as
      # changed now (V03).
      def feed_again(session, source_ids)
        keys = source_ids.filter_map { |source_id| @key.decode(source_id) }
        now = clock
        feed(session, (reread_columns(keys, now) if readable_by_column?) || RowPage.new(reread_records(keys, now), now))
      end

      private

      # @return [ActiveRecord::Relation] the rows of the scope in a range of source ids
      def range(after, upto)
        @key.range(@model.cells_claims_scope, after, upto)
      end

      def duplicates?(rows)
        rows.map(&:first).uniq.size < rows.size
      end

      # Returns true if the rows are in a table of this database, not in a view: `relkind` is "r" for tables
      # and "p" for partitioned ones (PostgreSQL 15 manual, pg_class).
      def table?
        return @table unless @table.nil?

        @table = %w[r p].include?(value("SELECT relkind FROM pg_class WHERE oid = to_regclass(#{table_literal})"))
      end

      # Returns the SQL expression that is true if a transaction has locked or overwritten this version of the
      # row: PostgreSQL sets `xmax` then (PostgreSQL 15 manual, 5.5 System Columns). The transaction may be open
      # or finished. Views have no system columns.
      def xmax_set
        Arel.sql(table? ? "(#{@model.quoted_table_name}.xmax::text <> '0')" : "false")
      end

      def table_literal
        with_connection { |connection| connection.quote(@model.quoted_table_name) }
      end

      def value(sql)
        with_connection { |connection| connection.uncached { connection.select_value(sql, "Leasehold") } }
      end

      def with_connection(&block)
        ActiveRecordCompat.with_connection(@model.connection_pool, &block)
      end

      def misconfigured(message)
        raise Error::Misconfigured, message
      end

      # Reads all rows from the first key to the last without instances, the fastest way to read rows. The
      # result may contain rows between the keys, which the session ignores.
      #
      # Returns nil in three cases:
      #
      # - the range has more than twice as many rows as keys
      # - a key is not in the scope
      # - an open transaction is writing one of the rows
      #
      # @return [RowPage, nil]
      def reread_columns(keys, now)
        # `xmax` belongs to the table, not to another source that the scope reads from.
        return unless @model.cells_claims_scope.from_clause.empty?

        limit = 2 * keys.size
        relation = within_bounds(keys, @model.cells_claims_scope).limit(limit)
        rows = read_columns(relation, xmax_set)
        return if rows.size == limit || (keys - rows.map(&:first)).any?

        # The expression's value is at this index: columns that the scope's `eager_load` adds come after it.
        suspects = rows.select { |row| row[column_names.size] == true }.map(&:first) & keys
        return RowPage.new(rows, now, claim_layout) if suspects.empty?

        locked = locked_by_writer(suspects, within_bounds(suspects, unscoped).limit(limit))
        RowPage.new(read_columns(relation), now, claim_layout) if locked.empty?
      end

      def reread_records(keys, now)
        suspects = with_keys(keys).where(xmax_set).ids
        locked = locked_by_writer(suspects, with_keys(suspects))
        scoped = within_bounds(keys, @model.cells_claims_scope.where(@model.primary_key => keys)).ids.to_set
        with_keys(keys).map do |record|
          source_id, updated_at, claims = row(record, expects_claims?(record, scoped) ? claims_of(record) : [])
          [source_id, locked.include?(record.id) ? now : updated_at, claims]
        end
      end

      # Returns the keys of suspects that an open transaction is writing or has locked to write: their rows
      # cannot be locked. Only suspects are locked, because a lock writes to the row's page, and most rows
      # have no `xmax`.
      #
      # @param relation [ActiveRecord::Relation] that contains the suspects
      # @return [Set]
      def locked_by_writer(suspects, relation)
        suspects.empty? ? Set.new : suspects.to_set - relation.where(xmax_set).lock("FOR SHARE SKIP LOCKED").ids
      end

      def with_keys(keys)
        within_bounds(keys, unscoped.where(@model.primary_key => keys))
      end

      def unscoped
        @model.base_class.unscoped
      end

      # Restricts the relation to the range from the first key to the last. For a range, the planner uses the
      # primary key's index even without statistics; for a long list of keys it may not.
      def within_bounds(keys, relation)
        return relation.none if keys.empty?

        @key.range(relation, nil, @key.encode(keys.last), from: @key.encode(keys.first))
      end

      # Returns true if other classes of the table (STI) may claim the same types. The server's records do not tell
      # the class, so those of other classes' rows are listed with the model's own.
      def shares_types?
        return @shares_types unless @shares_types.nil?

        others = Models.sharing_table(@model) - Models.of_table(@model)
        @shares_types = others.any? { |other| attributes_of(other).any? }
      end

      # Reads the rows of the table's other classes for which the server has records. Each row is returned with
      # those of its records that its own class calls for; otherwise all its records would count as claims
      # without a row. Its other claims are left out, so that the run creates and replaces only claims of the
      # model's own rows.
      #
      # @param records [Array<Record>] in the order of source ids
      # @param read [Array<Array>] rows that were read already, some of which may have changed their class since
      # @return [Array<Array>]
      def rows_of_other_classes(records, read)
        records = records.group_by { |record| record.claim.source_id }
        read.each { |source_id, *| records.delete(source_id) }
        others = with_keys(records.keys.filter_map { |source_id| @key.decode(source_id) }).grep_v(@model)
        others.map { |other| row(other, listed_claims(other, records.fetch(@key.encode(other.id)))) }
      end

      # @return [Array<Claim>] the claims in these records whose buckets the row should have
      def listed_claims(row, records)
        wanted = row.is_a?(Cells::Claimable) ? claims_of(row).to_set(&:bucket) : Set.new
        records.map(&:claim).select { |claim| wanted.include?(claim.bucket) }
      end

      # Returns true if the row should have claims. Rows of other classes of the table (STI) keep the claims
      # of their own class.
      def expects_claims?(record, scoped)
        record.is_a?(@model) ? scoped.include?(record.id) : record.is_a?(Cells::Claimable)
      end

      # Returns true if the claims can be read from the columns, without an instance for each row.
      def readable_by_column?
        !@key.packs_uuids? && Models.subclasses_in_table(@model).empty? && !shares_types? && @attributes.none?(&:conditional?) &&
          integer?(@model.cells_claims_subject_column) &&
          column_names.all? { |name| name == @updated_at || UNCAST_TYPES.include?(@model.type_for_attribute(name).class.name) }
      end

      def integer?(column)
        column && @model.type_for_attribute(column).type == :integer
      end

      # @return [Array<String>] the columns to read, each once
      def column_names
        @column_names ||= [@model.primary_key, @updated_at, @model.cells_claims_subject_column, *@attributes.map(&:name)].compact.uniq
      end

      def read_columns(relation, *more)
        query = ActiveRecordCompat.query(relation.reselect(*column_names, *more))
        rows = with_connection { |connection| connection.uncached { connection.select_rows(query, "Leasehold") } }
        rows.each { |row| row[0] = @key.encode(row[0]) } if @key.text?
        rows.each { |row| text_positions.each { |position| row[position] = nil if ClaimedAttribute.blank?(row[position]) } }
      end

      # @return [Array<Integer>] positions of the claimed texts among the columns
      def text_positions
        @text_positions ||= @attributes.map(&:name).reject { |name| integer?(name) || name == @model.primary_key }
                                       .map { |name| column_names.index(name) }
      end

      # @return [Array<Array>] for each claim its bucket type, subject type, and the positions of value and
      #   subject id among the columns
      def claim_layout
        subject = column_names.index(@model.cells_claims_subject_column)
        @attributes.map do |attribute|
          [attribute.type, column_names.index(attribute.name), @model.cells_claims_subject_type, subject]
        end
      end

      # @param claims [Array<Claim>]
      # @return [Array(String, Time, Array)] for {Verification#rows}
      def row(record, claims = claims_of(record))
        claims = claims.map { |claim| [claim.bucket_type, claim.bucket_value, claim.subject_type, claim.subject_id || NO_SUBJECT] }
        [@key.encode(record.id), record[@updated_at]&.to_time, claims]
      end

      # Builds the record's claims of the types that the run began with. Reads no feature flag again: if a flag
      # were switched off during the run, its claims would count as claims without a row and be destroyed (V11).
      #
      # @return [Array<Claim>]
      def claims_of(record)
        attributes_of(record.class).filter_map { |attribute| attribute.claim(record) if attribute.claims?(record) }
      end

      # @return [Array<ClaimedAttribute>] the attributes of a class of the table whose types the run compares
      def attributes_of(model)
        model.cells_claims_declarations.each_value.select { |attribute| bucket_types.include?(attribute.type) }
      end

      def clock
        micros = with_connection { |connection| LeaseTable.new(connection).clock_micros }
        Time.at(0, micros, :microsecond).utc
      end
    end
  end
end
