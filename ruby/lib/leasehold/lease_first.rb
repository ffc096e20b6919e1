# frozen_string_literal: true

module Leasehold
  # Saves and destroys whose lease is begun before BEGIN, so that no transaction waits for the network:
  #
  #     Leasehold.claiming do |claims|
  #       claims.save(user, email)
  #       claims.destroy(old_email)
  #     end
  #
  # The block only names records. Then they are validated, new ones get their primary keys, the lease is begun, and one
  # transaction saves and destroys them. What callbacks and associations change beyond is begun right before its COMMIT.
  class LeaseFirst
    def initialize
      @records = []
      @destroyed = Set.new.compare_by_identity
    end

    # Names records to save, in this order.
    def save(*records)
      @records.concat(records)
      self
    end

    # Names records to destroy.
    def destroy(*records)
      @destroyed.merge(records)
      save(*records)
    end

    # @raise [ActiveRecord::RecordInvalid, ActiveRecord::RecordNotSaved, ActiveRecord::RecordNotDestroyed]
    # @return [true]
    def run
      check
      saved.each { |record| raise ActiveRecord::RecordInvalid, record unless record.valid? }
      with_keys do
        effect = Transactions::NetEffect.new((saved + destroyed).flat_map { |record| changes(record) })
        update = Transactions::Update.new(connection, effect)
        update.begin_early
        connection.transaction { write(update) }
      end
      true
    end

    private

    def write(update)
      update.join
      @records.each { |record| @destroyed.include?(record) ? record.destroy! : record.save!(validate: false) }
    end

    def check
      strangers = @records.grep_v(ActiveRecord::Base)
      raise ArgumentError, "#{strangers.first.class} is no record: name records, a list as `*list`" unless strangers.empty?

      databases = @records.map { |record| record.class.connection_pool }.uniq
      raise ArgumentError, "no records: name them with `save` and `destroy`" if databases.empty?
      raise ArgumentError, "records of several databases: claim for one at a time" if databases.many?
      return if Transactions::Record.outside?(connection)

      raise ActiveRecord::TransactionIsolationError, "a transaction is open: the lease is to be begun before it"
    end

    def connection
      @records.first.class.connection
    end

    def saved
      @records.reject { |record| @destroyed.include?(record) }
    end

    def destroyed
      @records.select { |record| @destroyed.include?(record) }
    end

    # What saving or destroying the record will change.
    def changes(record)
      return [] unless record.class.respond_to?(:cells_claims_attributes)

      pending(record).filter_map do |attribute, before, after|
        Transactions::Change.new(connection, record, attribute, before, after) unless before == after
      end
    end

    # Attributes, with their claims before and after.
    def pending(record)
      return RowUpdate.deletion(record) if @destroyed.include?(record)
      return RowUpdate.insertion(record) if record.new_record?

      RowUpdate.read(record, StoredRow.to_write(record))&.changes.to_a
    end

    # Claims name rows, so new ones need their keys before they are inserted, and what belongs to them needs them, too. All lose
    # them again where that fails.
    def with_keys
      given = []
      saved.each { |record| given << [record, record.class.primary_key] if record.new_record? && record.id.nil? }
      given.each { |record, key| record[key] = next_key(record.class) }
      given.concat(saved.flat_map { |record| adopt_keys(record) })
      yield
      given = []
    ensure
      given.each { |record, key| record[key] = nil }
    end

    def next_key(model)
      return SecureRandom.uuid if model.type_for_attribute(model.primary_key).type == :uuid

      sql = "SELECT nextval(#{connection.quote(model.sequence_name)})"
      connection.uncached { connection.select_value(sql, "Leasehold") }
    end

    # As saving it would, before.
    #
    # @return [Array<Array(ActiveRecord::Base, String)>] the record, and a column that got a key
    def adopt_keys(record)
      record.class.reflect_on_all_associations(:belongs_to).filter_map do |reflection|
        column = reflection.foreign_key.to_s
        target = assigned(record.association(reflection.name))
        next if target.nil? || record[column]

        record[column] = target.public_send(reflection.options[:primary_key] || :id)
        [record, column]
      end
    end

    # What the record is to belong to, and not what it belonged to before its key was changed.
    def assigned(association)
      association.target if association.loaded? && !association.stale_target?
    end
  end

  class << self
    # Begins the lease of some saves and destroys before their transaction; see {LeaseFirst}.
    #
    # @yieldparam claims [LeaseFirst]
    # @return [Boolean] false where a record is not valid or its claims were refused; its `errors` say why
    def claiming(&block)
      claiming!(&block)
    rescue ActiveRecord::RecordInvalid, ActiveRecord::RecordNotSaved, ActiveRecord::RecordNotDestroyed
      false
    end

    # As {claiming}, but raises where that answers false.
    #
    # @return [true]
    def claiming!
      LeaseFirst.new.tap { |claims| yield claims }.run
    end
  end
end
