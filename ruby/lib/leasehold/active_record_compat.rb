# frozen_string_literal: true

module Leasehold
  # All uses of ActiveRecord's internals. Each names its place in activerecord 6.1.7.10 and, after the slash, in
  # 7.2.2.2, below `lib/active_record`. They were also read in 7.0.10, 7.1.6, 8.0.5, 8.1.3.1 and 8.2.0.alpha
  # (main of 2026-08-22); a comment says where one of these differs.
  module ActiveRecordCompat
    class << self
      # Returns the connection that this thread holds, without taking one from the pool. A save must not take
      # one: Rails 7.2 returns it to the pool only at the end of the request, and raises if
      # `permanent_connection_checkout` is `:disallowed` (7.2.2.2, connection_handling.rb:270).
      #
      # `active_connection?` returns the connection, not true
      # (connection_adapters/abstract/connection_pool.rb:436 / 379).
      #
      # @param model [Class]
      # @return [ActiveRecord::ConnectionAdapters::AbstractAdapter, nil] nil if the thread holds none
      def held_connection(model)
        model.connection_pool.active_connection? || nil
      end

      # Runs the block with the connection that this thread holds. If the thread holds none, takes one from the
      # pool and returns it after the block (connection_adapters/abstract/connection_pool.rb:457 / 408).
      #
      # Rails 7.2 and later need `prevent_permanent_checkout: true`. Without it, a call of `Model.connection` in
      # the block keeps the connection until the end of the request.
      #
      # @yieldparam connection [ActiveRecord::ConnectionAdapters::AbstractAdapter]
      def with_connection(pool, &block)
        return pool.with_connection(&block) unless pool.respond_to?(:lease_connection)

        pool.with_connection(prevent_permanent_checkout: true, &block)
      end

      # Returns false only if this thread holds no connection of the pool and the pool's query cache is off.
      # Rails enables the cache for each request and job, for all pools (query_cache.rb:28 / 37). Rails 7.2
      # leaves out pools with `query_cache: false`.
      def query_cache?(pool)
        pool.active_connection? || pool.query_cache_enabled ? true : false
      end

      # Runs the block without this thread's query cache of the pool. Until Rails 7.1 the connection has the
      # cache (connection_adapters/abstract/query_cache.rb:77), from 7.2 on the pool
      # (connection_adapters/abstract/query_cache.rb:139).
      #
      # Takes no connection from the pool, because the pool's database may be unreachable. Until Rails 7.1,
      # the pool's setting applies to connections that the block takes
      # (connection_adapters/abstract/query_cache.rb:34).
      def without_query_cache(pool, &block)
        return pool.disable_query_cache(&block) if pool.respond_to?(:disable_query_cache)

        enabled = pool.query_cache_enabled
        held = pool.active_connection?
        pool.disable_query_cache! if enabled
        held ? held.uncached(&block) : yield
      ensure
        pool.enable_query_cache! if enabled
      end

      # Registers a participant with the connection's current transaction
      # (connection_adapters/abstract/database_statements.rb:349 / 407).
      def add_participant(connection, participant)
        connection.add_transaction_record(participant)
      end

      # Registers a participant before all others, so that ActiveRecord notifies it before models run their
      # `after_commit` and `after_rollback` callbacks. Without a participant, `records` is nil
      # (connection_adapters/abstract/transaction.rb:110 / 219).
      def add_first_participant(connection, participant)
        records = connection.current_transaction.records
        records ? records.unshift(participant) : add_participant(connection, participant)
      end

      # @param transaction [ActiveRecord::ConnectionAdapters::Transaction]
      # @param type [Module]
      # @return [Array<Participant>] the participants of this type, in the order in which ActiveRecord
      #   notifies them: those of {add_first_participant} come first, the latest of them before the others
      def participants(transaction, type)
        transaction.records.to_a.grep(type)
      end

      # Returns the open transactions of the connection, savepoints included, the database's own first
      # (connection_adapters/abstract/transaction.rb:226 / 489).
      #
      # @param connection [ActiveRecord::ConnectionAdapters::AbstractAdapter, nil]
      # @return [Array<ActiveRecord::ConnectionAdapters::Transaction>]
      def transactions(connection)
        connection ? connection.transaction_manager.instance_variable_get(:@stack) : []
      end

      # Returns the unjoinable transactions at the bottom of the stacks of this thread's connections: in
      # transactional tests, the ones that the test framework began and will roll back. `connection_pool_list`
      # takes a role in all versions (connection_adapters/abstract/connection_pool.rb:1038;
      # connection_adapters/abstract/connection_handler.rb:93).
      #
      # @return [Array<ActiveRecord::ConnectionAdapters::Transaction>]
      def test_transactions
        pools = ActiveRecord::Base.connection_handler.connection_pool_list(ActiveRecord::Base.current_role)
        pools.flat_map { |pool| transactions(pool.active_connection? || nil).take_while { |transaction| !transaction.joinable? } }
      end

      # Registers a participant with an open transaction, which need not be the innermost
      # (connection_adapters/abstract/transaction.rb:100 / 185).
      def join(transaction, participant)
        transaction.add_record(participant)
      end

      # Returns true if ActiveRecord rolls back instead of committing because this thread is being killed.
      # ActiveRecord makes the same comparison (connection_adapters/abstract/transaction.rb:337 / 624).
      def thread_killed?
        Thread.current.status == "aborting"
      end

      # Rolls back the connection's current transaction while a participant's `before_committed!` runs. The
      # thread is being killed at that time, so ActiveRecord would leave the transaction open: it rolls back
      # only if an error is raised (connection_adapters/abstract/transaction.rb:352 / 632).
      #
      # In all versions `rollback_transaction` takes the transaction off the stack, and `commit_transaction`
      # then takes off the transaction on top, without looking at it
      # (connection_adapters/abstract/transaction.rb:300 / 590). On top is the outer transaction, if there is
      # one. So this method first puts an empty transaction on top of it. ActiveRecord begins transactions
      # lazily, so nothing is sent to the database.
      def roll_back_committing(connection)
        nested = connection.open_transactions > 1
        connection.rollback_transaction
        connection.begin_transaction if nested
      rescue ActiveRecord::ActiveRecordError
        connection.throw_away!
      end

      # Rolls back the database's transaction after ActiveRecord has reported its rollback without sending
      # ROLLBACK. Until Rails 7.0 ActiveRecord does this for an `ActiveRecord::TransactionRollbackError`, and
      # then closes the connection (connection_adapters/abstract/transaction.rb:311, 324 and 335 / not in 7.2).
      # Rails 8.2 does this only if COMMIT raised that error.
      def roll_back_open(connection)
        connection.rollback_db_transaction
      end

      # Returns true if PostgreSQL has aborted the connection's transaction. PostgreSQL answers the COMMIT of
      # such a transaction with ROLLBACK, without an error. The driver knows the status without a query.
      def aborted?(connection)
        raw = raw_connection(connection)
        raw.is_a?(PG::Connection) && !raw.finished? && raw.transaction_status == PG::PQTRANS_INERROR
      end

      # Returns true if the database has ended a transaction that wrote rows: by a raw ROLLBACK or COMMIT, or
      # because the connection was closed or replaced. Methods such as `reconnect!` give the connection a new
      # transaction manager (connection_adapters/abstract/database_statements.rb:343 / 385), while the old
      # manager still goes on to commit.
      def ended?(connection)
        raw = raw_connection(connection)
        raw.nil? || (raw.is_a?(PG::Connection) && (raw.finished? || raw.transaction_status == PG::PQTRANS_IDLE))
      end

      # Returns the columns of the table's unique indexes to which a foreign key may refer. Such an index has no
      # condition and no expression; an index with an expression has a String as `columns`
      # (connection_adapters/postgresql/schema_statements.rb:86 / 86). The schema cache reads indexes once per
      # process (connection_adapters/schema_cache.rb:129 / 205).
      def unique_columns(model)
        indexes = held_connection(model).schema_cache.indexes(model.table_name)
        indexes.select { |index| index.unique && index.where.nil? && index.columns.is_a?(Array) }.flat_map(&:columns)
      end

      # Returns true if an UPDATE writes only changed columns. Rails 7.0 replaced `partial_writes` by
      # `partial_updates` and `partial_inserts` (attribute_methods/dirty.rb:17 / 49).
      def partial_updates?(model)
        model.respond_to?(:partial_updates) ? model.partial_updates : model.partial_writes
      end

      # Returns the relation's query. `to_sql` is not used: it writes the values into the SQL text, which logs
      # show (V09). Joins of `eager_load` are added as `to_sql` adds them (relation.rb:657 / 1196).
      #
      # @return [Arel::SelectManager]
      def query(relation)
        return relation.arel unless relation.eager_loading?

        relation.send(:apply_join_dependency) { |joined, dependency| dependency.apply_column_aliases(joined).arel }
      end

      # Returns the value of a column as it is written (attribute.rb in activemodel, `value_for_database`). Rails 7.0 added a
      # public method for it.
      def value_for_database(record, column)
        record.instance_variable_get(:@attributes)[column].value_for_database
      end

      # Puts the loaded records of a collection association back. A save removes the records that are marked for
      # destruction from the collection, and a rollback does not restore them
      # (associations/collection_association.rb:397 / 403).
      def restore_target(association, target)
        association.target.replace(target)
      end

      private

      # Reads the instance variable, because the adapter's method `raw_connection` would turn off lazy
      # transactions. Rails 7.1 renamed the variable (connection_adapters/postgresql_adapter.rb:756 / 982), and
      # clears it in `disconnect!`.
      #
      # @return [PG::Connection, nil]
      def raw_connection(connection)
        connection.instance_variable_get(:@raw_connection) || connection.instance_variable_get(:@connection)
      end
    end

    # The interface of an object that joins a transaction the way a saved model does: ActiveRecord keeps it
    # in the transaction's `records` and notifies it of the transaction's end.
    #
    # ActiveRecord does the bookkeeping of savepoints (connection_adapters/abstract/transaction.rb):
    #
    # - a released savepoint hands its participants to the transaction around it (line 158 / 312)
    # - a savepoint that is rolled back notifies its participants of the rollback and drops them
    #   (line 126 / 254)
    module Participant
      # Returns true, so that ActiveRecord runs the callbacks below
      # (connection_adapters/abstract/transaction.rb:152 / 350).
      def trigger_transactional_callbacks?
        true
      end

      # Runs immediately before COMMIT, or before a savepoint directly inside a `joinable: false`
      # transaction is released (connection_adapters/abstract/transaction.rb:142 / 274).
      def before_committed!; end

      # Runs after COMMIT, or after the release of a savepoint directly inside a `joinable: false` transaction.
      # ActiveRecord also calls this method after a model's `after_commit` callback failed
      # (connection_adapters/abstract/transaction.rb:162 / 316).
      def committed!(**); end

      # Runs after ROLLBACK, also of a savepoint.
      def rolledback!(**); end

      # {CommitCheck} calls this method if the connection is lost during COMMIT, or during RELEASE of a
      # savepoint. After a lost COMMIT, the transaction may or may not be committed. ActiveRecord itself
      # notifies no participant of a lost COMMIT: Rails 6.1 and 7.0 send a ROLLBACK, which raises
      # (connection_adapters/abstract/transaction.rb:353), and Rails 7.1 and later send none (7.2.2.2,
      # connection_adapters/abstract/transaction.rb:629).
      def commit_lost; end
    end

    # Prepended to `ConnectionAdapters::Transaction`. Every COMMIT passes here after all callbacks that may
    # still write rows (connection_adapters/abstract/transaction.rb:142 / 274):
    #
    # - `before_commit` of models, with claims or without
    # - deferred touches (touch_later.rb:6 / 6)
    # - `before_commit` of the transaction itself
    #
    # If a callback wrote rows in a savepoint, the savepoint is released by now, so its rows belong to the
    # transaction.
    #
    # `@run_commit_callbacks` is true for each transaction whose end runs `after_commit`: the database's own,
    # and each savepoint directly inside of a transaction with `joinable: false`
    # (connection_adapters/abstract/transaction.rb:235 / 498). The gem begins claims at the end of the same
    # transactions, so `after_commit` never runs before its transaction's claims are begun.
    module CommitPoint
      # `commit_transaction` calls this method while the transaction is still on the stack
      # (connection_adapters/abstract/transaction.rb:298 / 588).
      def before_commit_records
        super
        Transactions::Update.begin(self) if @run_commit_callbacks
      end
    end

    # Prepended to `ConnectionAdapters::RealTransaction` and `SavepointTransaction`: the last step before COMMIT
    # or RELEASE is sent.
    module CommitCheck
      # An error raised here rolls the transaction back (connection_adapters/abstract/transaction.rb:353 / 633).
      def commit
        if @run_commit_callbacks
          Transactions::Update.check_complete(self)
          Transactions::Settlement.check_alive(self)
        end
        super
      rescue ActiveRecord::StatementInvalid => error
        lost = [PG::ConnectionBad, PG::UnableToSend].any? { |cause| error.cause.is_a?(cause) }
        ActiveRecordCompat.participants(self, Participant).each(&:commit_lost) if lost
        raise
      end
    end

    # Overrides the private methods with which ActiveRecord writes rows. They run after all `before_*`
    # callbacks have assigned values, and before an `after_*` callback can save or reload the record again. The
    # signatures and calls are the same in all versions that were read.
    module RowWrites
      private

      # ActiveRecord calls the block immediately after the INSERT, or after {#_update_row}
      # (persistence.rb:897, 919 and 938 / 893, 915 and 942).
      def create_or_update(**options, &block)
        cells_claims_around_save do |write|
          @cells_claims_insert = write if new_record?
          super(**options) do |record|
            write.register { cells_claims_after_insert } if previously_new_record?
            block&.call(record)
          end
        end
      ensure
        @cells_claims_insert = nil
      end

      # ActiveRecord calls this method immediately before it sends the INSERT, after all callbacks
      # (persistence.rb:929 / 928).
      def attributes_with_values(*)
        @cells_claims_insert&.start
        super
      end

      # Returns the number of rows that the UPDATE changed (persistence.rb:890 / 886).
      def _update_row(attribute_names, *)
        # A copy, because optimistic locking appends its column to the list (locking/optimistic.rb:96 / 102).
        cells_claims_around_update(attribute_names.dup) { super }
      end

      # Returns the number of rows that the DELETE removed (persistence.rb:872 / 868).
      def destroy_row
        cells_claims_around_delete { super }
      end
    end

    # Prepended to `ActiveRecord::Relation`.
    module CreateOrFind
      # Creates a record, or finds it if another transaction has inserted it (relation.rb:208 / 266). The
      # original method opens a transaction of its own, so a refusal of claims would leave it as an exception. A
      # method without a bang must return the record with its errors instead, like `create`. From Rails 7.1 on
      # `find_or_create_by` calls this method (7.2.2.2, relation.rb:224).
      def create_or_find_by(attributes, &block)
        return super unless klass < Cells::Claimable

        created = nil
        joining = Transactions::Nesting.joining?(ActiveRecordCompat.held_connection(klass))
        begin
          super(attributes) do |record|
            created = record
            block&.call(record)
          end
        rescue ClaimsRejected => rejected
          raise if joining || created.nil?

          rejected.reported_on(created)
          created
        end
      end
    end
  end
end
