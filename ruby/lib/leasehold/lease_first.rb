# frozen_string_literal: true

module Leasehold
  # Saves and destroys records under a lease that is begun before BEGIN, so that no transaction waits for
  # the network:
  #
  #     Leasehold.claiming do |claims|
  #       claims.save(user, email)
  #       claims.destroy(old_email)
  #     end
  #
  # The block only names the records. After it:
  #
  # 1. the records are validated
  # 2. new records get their primary keys
  # 3. the lease is begun
  # 4. one transaction saves and destroys the records
  #
  # Claims that callbacks and associations change in addition get a lease of their own before COMMIT.
  class LeaseFirst
    def initialize
      @records = []
      @destroyed = Set.new.compare_by_identity
    end

    # Adds records to save, in this order.
    def save(*records)
      @records.concat(records)
      self
    end

    # Adds records to destroy.
    def destroy(*records)
      @destroyed.merge(records)
      save(*records)
    end

    # @raise [ActiveRecord::RecordInvalid, ActiveRecord::RecordNotSaved, ActiveRecord::RecordNotDestroyed]
    # @return [true]
    def run
      check
      ActiveRecordCompat.with_connection(@records.first.class.connection_pool) { |connection| run_over(connection) }
      true
    end

    private

    def run_over(connection)
      @connection = connection
      saved.each { |record| raise ActiveRecord::RecordInvalid, record unless record.valid? }
      with_primary_keys do
        effect = Transactions::NetEffect.new((saved + destroyed).flat_map { |record| changes(record) })
        update = Transactions::Update.new(connection, effect)
        run_under(update, connection)
      end
    end

    def run_under(update, connection)
      update.begin_early
      connection.transaction { write(update) }
    ensure
      update.abandon
    end

    def write(update)
      update.join
      @records.each { |record| @destroyed.include?(record) ? record.destroy! : record.save!(validate: false) }
    end

    def check
      other = @records.grep_v(ActiveRecord::Base)
      unless other.empty?
        raise ArgumentError, "a #{other.first.class} is not a record: pass records, and a list of them as `*list`"
      end

      databases = @records.map { |record| record.class.connection_pool }.uniq
      raise ArgumentError, "the block names no record: call `save` or `destroy` in it" if databases.empty?
      raise ArgumentError, "the records are in several databases: use one `claiming` block per database" if databases.many?
      return if Transactions::Nesting.none_open?(ActiveRecordCompat.held_connection(@records.first.class))

      raise ActiveRecord::TransactionIsolationError, "a transaction is open: call `claiming` outside of it"
    end

    def saved
      @records.reject { |record| @destroyed.include?(record) }
    end

    def destroyed
      @records.select { |record| @destroyed.include?(record) }
    end

    # @return [Array<Transactions::Change>] the changes of claims that saving or destroying the record makes
    def changes(record)
      return [] if !record.class.respond_to?(:cells_claims_declarations) || key_unknown?(record)
      # The subject is unknown before the row is written: the block may look up what a trigger sets.
      return [] if record.class.cells_claims_subject_computed?

      claims_before_and_after(record).filter_map do |attribute, before, after|
        Transactions::Change.new(record, attribute, before, after) unless before == after
      end
    end

    # @return [Array<Array(ClaimedAttribute, Claim, Claim)>] each attribute, the row's claim before the save
    #   or destroy and its claim after; nil for no claim
    def claims_before_and_after(record)
      return RowUpdate.deletion(record) if @destroyed.include?(record)
      return RowUpdate.insertion(record) if record.new_record?

      RowUpdate.read(record, StoredRow.columns_to_write(record))&.changes.to_a
    end

    # Runs the block with primary keys assigned to new records, and foreign keys to the records that belong
    # to them: a claim names its row by the primary key, so the key must exist before the INSERT. If the
    # block fails, all of these keys are set to nil again.
    def with_primary_keys
      assigned = []
      saved.each { |record| assigned << [record, record.class.primary_key] if record.new_record? && record.id.nil? }
      assigned.each { |record, column| record[column] = next_key(record.class) }
      assigned.concat(saved.flat_map { |record| assign_foreign_keys(record) })
      yield
      assigned = []
    ensure
      assigned.each { |record, column| record[column] = nil }
    end

    # Returns nil for a column that is GENERATED ALWAYS: PostgreSQL refuses an INSERT with a key
    # (SQLSTATE 428C9). The claims of such a record are begun before COMMIT, as usual.
    def next_key(model)
      return SecureRandom.uuid if model.type_for_attribute(model.primary_key).type == :uuid

      sql = <<~SQL
        SELECT nextval(#{@connection.quote(model.sequence_name)}) FROM pg_attribute
        WHERE attrelid = #{@connection.quote(model.quoted_table_name)}::regclass
          AND attname = #{@connection.quote(model.primary_key)} AND attidentity <> 'a'
      SQL
      @connection.uncached { @connection.select_value(sql, "Leasehold") }
    end

    # Returns true if the record's key is known only after the INSERT, or the key of a record that it belongs
    # to.
    def key_unknown?(record)
      belongs_to = record.class.reflect_on_all_associations(:belongs_to).map { |reflection| current_target(record.association(reflection.name)) }
      [record, *belongs_to.compact].any? { |one| one.new_record? && one.id.nil? }
    end

    # Assigns the foreign keys that a save would assign (activerecord 6.1.7.10,
    # autosave_association.rb:508-510).
    #
    # @return [Array<Array(ActiveRecord::Base, String)>] the record, and a column that was assigned
    def assign_foreign_keys(record)
      record.class.reflect_on_all_associations(:belongs_to).filter_map do |reflection|
        # The save itself assigns a foreign key of several columns (Rails 7.1).
        next if reflection.foreign_key.is_a?(Array)

        column = reflection.foreign_key.to_s
        target = current_target(record.association(reflection.name))
        next if target.nil? || record[column]

        record[column] = target.public_send(reflection.options[:primary_key] || :id)
        [record, column]
      end
    end

    # Returns the association's loaded target; nil if the foreign key was changed after the target was loaded.
    def current_target(association)
      association.target if association.loaded? && !association.stale_target?
    end
  end

  class << self
    # Saves and destroys records under a lease that is begun before their transaction; see {LeaseFirst}.
    #
    # @yieldparam claims [LeaseFirst]
    # @return [Boolean] false if a record is invalid or its claims were refused; its `errors` list the reasons
    def claiming(&block)
      claiming!(&block)
    rescue ActiveRecord::RecordInvalid, ActiveRecord::RecordNotSaved, ActiveRecord::RecordNotDestroyed
      false
    end

    # Does the same as {claiming}, but raises instead of returning false.
    #
    # @return [true]
    def claiming!
      LeaseFirst.new.tap { |claims| yield claims }.run
    end
  end
end
