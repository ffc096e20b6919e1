# frozen_string_literal: true

module Leasehold
  class Verifier
    # A model's rows, as verification wants them: by source id, with what they claim.
    class Rows
      # Types that give values as the database does. What is derived from them, or wraps them, may give others.
      PLAIN = %w[
        ActiveModel::Type::Integer ActiveModel::Type::String ActiveModel::Type::ImmutableString ActiveRecord::Type::Text
        ActiveRecord::ConnectionAdapters::PostgreSQL::OID::Uuid
        ActiveRecord::ConnectionAdapters::PostgreSQL::OID::SpecializedString
      ].freeze
      # Rows, when they were read by the database's clock, and where their claims are among the columns, unless they are said.
      Read = Struct.new(:rows, :now, :layout)
      # The id of a subject that a row does not have: there is no such claim, and the report says so.
      NOBODY = 0

      def initialize(model)
        @model = model
        @attributes = Models.of_table(model).flat_map(&:cells_claims_enabled).uniq
        @key = SourceKey.new(model)
        @updated_at = "updated_at" if model.column_names.include?("updated_at")
      end

      # That the scope can be read page by page.
      #
      # @raise [Error::Misconfigured]
      def check
        scope = @model.cells_claims_scope
        what = "a limit or an offset, which would hold for each page" if scope.limit_value || scope.offset_value
        what ||= "a lock, which whoever writes a row would have to wait for" if scope.lock_value
        refuse("`cells_claims_scope` of `#{@model.name}` has #{what}: leave it out") if what
      end

      # That rows can be locked.
      #
      # @raise [Error::Misconfigured]
      def check_lockable
        return if !stored? || value("SELECT has_any_column_privilege(#{table}, 'UPDATE')")

        name = @model.quoted_table_name
        refuse("the database's role may not lock rows of #{name}, which tells those that are being written: " \
               "`GRANT UPDATE ON #{name}` to it")
      end

      # What the rows claim, by type; what is switched off is left alone.
      #
      # @return [Array<Integer>]
      def bucket_types
        @bucket_types ||= @attributes.map(&:type).uniq
      end

      # @return [String, nil] the source id so many rows on, nil where there are fewer
      def bound(after, rows)
        key = @key.range(@model.cells_claims_scope, after, nil).offset(rows - 1).limit(1).pick(@model.primary_key)
        key && @key.encode(key)
      end

      # The rows of a range, for {#feed}.
      #
      # @return [Read]
      def read(after, upto)
        relation = @key.range(@model.cells_claims_scope, after, upto)
        now = clock
        return Read.new(columns(relation), now, layout) if plain?

        # Whatever the scope selects, a row has all of its own columns.
        Read.new(relation.reselect(@model.arel_table[Arel.star]).map { |record| row(record) }, now)
      end

      # Hands rows that were read to the session.
      #
      # @raise [Error::Misconfigured] a row comes twice
      def feed(session, read)
        return session.rows(read.rows, now: read.now) unless read.layout

        session.attributes(read.rows, key: 0, updated_at: names.index(@updated_at), claims: read.layout, now: read.now)
      rescue Error::Internal => error
        raise unless error.code == "INVALID_ROWS" && twice?(read.rows)

        refuse("`cells_claims_scope` of `#{@model.name}` gives a row more than once: add `distinct`")
      end

      # Hands single rows to the session, those outside of the model's scope without claims, and those that an open transaction
      # has written as changed just now.
      def feed_again(session, source_ids)
        keys = source_ids.map { |source_id| @key.decode(source_id) }
        now = clock
        feed(session, (columns_again(keys, now) if plain?) || Read.new(records_again(keys, now), now))
      end

      private

      def twice?(rows)
        rows.map(&:first).uniq.size < rows.size
      end

      # Whether the rows are in a table of this database, and not behind a view.
      def stored?
        return @stored unless @stored.nil?

        @stored = %w[r p].include?(value("SELECT relkind FROM pg_class WHERE oid = to_regclass(#{table})"))
      end

      # Whether a transaction, at its end or not, has locked the row as it stands, or written over it. Views can't tell.
      def touched
        Arel.sql(stored? ? "(#{@model.quoted_table_name}.xmax::text <> '0')" : "false")
      end

      def table
        @model.connection.quote(@model.quoted_table_name)
      end

      def value(sql)
        @model.connection.uncached { @model.connection.select_value(sql, "Leasehold") }
      end

      def refuse(message)
        raise Error::Misconfigured, message
      end

      # The rows from the first of the keys to the last off their columns: as quickly as rows can be read, and most rows were
      # read so before. Nil where there are many more, where some are not in the scope, and where one is being written.
      def columns_again(keys, now)
        # What is read from something else can't be told to be touched.
        return unless @model.cells_claims_scope.from_clause.empty?

        many = 2 * keys.size
        span = between(keys, @model.cells_claims_scope).limit(many)
        rows = columns(span, touched)
        return if rows.size == many || (keys - rows.map(&:first)).any?

        # Behind it may be columns of what the scope loads beside.
        suspects = rows.select { |row| row[names.size] == true }.map(&:first) & keys
        return Read.new(rows, now, layout) if suspects.empty?

        Read.new(columns(span), now, layout) if being_written(suspects, between(suspects, unscoped).limit(many)).empty?
      end

      def records_again(keys, now)
        suspects = among(keys).where(touched).ids
        written = being_written(suspects, among(suspects))
        scoped = between(keys, @model.cells_claims_scope.where(@model.primary_key => keys)).ids.to_set
        among(keys).map do |record|
          source_id, updated_at, claims = row(record, claims: claims?(record, scoped))
          [source_id, written.include?(record.id) ? now : updated_at, claims]
        end
      end

      # Those of touched rows that can't be locked, since an open transaction has written them, or is about to. Most rows have
      # never been touched since they were written, and no lock is needed to tell.
      #
      # @param relation [ActiveRecord::Relation] in which the rows are
      def being_written(suspects, relation)
        suspects.empty? ? Set.new : suspects.to_set - relation.where(touched).lock("FOR SHARE SKIP LOCKED").ids
      end

      def among(keys)
        between(keys, unscoped.where(@model.primary_key => keys))
      end

      def unscoped
        @model.base_class.unscoped
      end

      # Bounds that the database finds without statistics, which a list of many keys are not.
      def between(keys, relation)
        return relation.none if keys.empty?

        @key.range(relation.where("#{@key.column} >= ?", keys.first), nil, @key.encode(keys.last))
      end

      # Rows of other classes in the same table (STI) keep what those claim of the types that are looked at.
      def claims?(record, scoped)
        record.is_a?(@model) ? scoped.include?(record.id) : record.is_a?(Cells::Claimable)
      end

      # Whether the claims can be read off the columns, without making a record of each row.
      def plain?
        Models.below(@model).empty? && @attributes.none?(&:conditional?) &&
          @model.type_for_attribute(@model.cells_claims_subject_key).type == :integer &&
          names.all? { |name| name == @updated_at || PLAIN.include?(@model.type_for_attribute(name).class.name) }
      end

      # The columns that are read, each once.
      def names
        @names ||= [@model.primary_key, @updated_at, @model.cells_claims_subject_key, *@attributes.map(&:name)].compact.uniq
      end

      def columns(relation, *more)
        sql = relation.reselect(*names, *more).to_sql
        rows = @model.connection.uncached { @model.connection.select_rows(sql, "Leasehold") }
        rows.each { |row| row[0] = @key.encode(row[0]) } if @key.text?
        rows
      end

      # Where each claim's value and subject are among the columns.
      def layout
        subject = names.index(@model.cells_claims_subject_key)
        @attributes.map do |attribute|
          [attribute.type, names.index(attribute.name), @model.cells_claims_subject_type, subject]
        end
      end

      def row(record, claims: true)
        [@key.encode(record.id), record[@updated_at]&.to_time, claims ? claims_of(record) : []]
      end

      def claims_of(record)
        claims = record.cells_claims_metadata.select { |claim| bucket_types.include?(claim.bucket_type) }
        claims.map { |claim| [claim.bucket_type, claim.bucket_value, claim.subject_type, claim.subject_id || NOBODY] }
      end

      def clock
        micros = LeaseTable.new(@model.connection).clock_micros
        Time.at(0, micros, :microsecond).utc
      end
    end
  end
end
