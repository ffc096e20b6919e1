# frozen_string_literal: true

require "active_record"
require "leasehold/native"
require "leasehold/active_record_compat"

module Leasehold
  # Raised if the guard of a lock refuses a transaction (K18). PostgreSQL has rolled the transaction back, or will:
  # nothing of it is committed.
  class GuardRefused < ActiveRecord::StatementInvalid; end
  # The fence has passed: a later holder of the lock has guarded the resource (SQLSTATE LH001).
  class GuardFencePassed < GuardRefused; end
  # The transaction has outlived the session of its lock (SQLSTATE LH002). Raised by the call of the guard or by COMMIT.
  class GuardSessionLost < GuardRefused; end

  # Calls the guard, SQL that the migration of `rails generate leasehold:guard` installs.
  class Guard
    # Exceptions by SQLSTATE.
    REFUSALS = { Native::GUARD_FENCE_PASSED => GuardFencePassed, Native::GUARD_SESSION_LOST => GuardSessionLost }.freeze

    # The text has no value: Rails logs it, and keys of locks appear in no log (K24). It selects no column, because
    # ActiveRecord warns of the type void.
    SQL = "SELECT FROM leasehold_guard($1, $2, make_interval(secs => $3))"
    private_constant :SQL

    # Prepended to the adapter of PostgreSQL: a deferred trigger of the guard can refuse any COMMIT.
    module Translation
      private

      # ActiveRecord calls this method for each error of the database, and raises the returned exception (activerecord
      # 6.1.7.10, connection_adapters/postgresql_adapter.rb:491; 7.2.2.2, :765).
      def translate_exception(exception, message:, sql:, binds:)
        refusal = exception.is_a?(PG::Error) && REFUSALS[exception.result&.error_field(PG::PG_DIAG_SQLSTATE)]
        refusal ? refusal.new(message, sql: sql, binds: binds) : super
      end
    end
    private_constant :Translation

    # @param model [Class] a model of the database
    # @raise [Error::Misconfigured] if this thread has no transaction on the database, whose COMMIT the guard could check
    def initialize(model)
      @connection = ActiveRecordCompat.held_connection(model)
      unless @connection&.transaction_open?
        raise Error::Misconfigured, "`guard!` is called outside of a transaction: call it first in the transaction that writes"
      end

      type = @connection.class
      type.prepend(Translation) unless type < Translation
    end

    # Guards the transaction.
    #
    # @param resource [String] the name of what the lock protects
    # @param fence [Integer]
    # @param remaining [Float] seconds until the session of the lock is lost
    # @raise [GuardRefused]
    # @raise [Error::Misconfigured] if the database has no guard
    # @return [void]
    def call(resource, fence, remaining)
      @connection.exec_query(SQL, "Leasehold", binds(String(resource), Integer(fence), Float(remaining)))
      nil
    rescue ActiveRecord::StatementInvalid => error
      raise unless error.cause.is_a?(PG::UndefinedFunction)

      raise Error::Misconfigured, "the database has no function `leasehold_guard`: run the migration of `rails generate leasehold:guard`"
    end

    private

    # @return [Array<ActiveModel::Attribute>]
    def binds(*values)
      %w[resource fence remaining].zip(values).map do |name, value|
        ActiveRecord::Relation::QueryAttribute.new(name, value, ActiveModel::Type::Value.new)
      end
    end
  end
end
