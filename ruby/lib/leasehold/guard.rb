# frozen_string_literal: true

require "active_record"
require "leasehold/native"
require "leasehold/active_record_compat"
require "leasehold/sqlstate_translation"

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
    # The form for a slot of a shared lock. A guard that was installed before locks could be shared lacks it (K13).
    SLOT_SQL = "SELECT FROM leasehold_guard($1, $2, make_interval(secs => $3), $4)"
    NO_GUARD = "the database has no function `leasehold_guard`: run the migration of `rails generate leasehold:guard`"
    OLDER_GUARD = "the database has no function `leasehold_guard` for shared locks: run `rails generate leasehold:guard` " \
                  "again, and its migration"
    private_constant :SQL, :SLOT_SQL, :NO_GUARD, :OLDER_GUARD

    # Prepended to the adapter of PostgreSQL.
    Translation = SqlstateTranslation.new(REFUSALS)
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
    # @param slot [Integer] the slot of a shared lock; 0 if the lock is held alone
    # @raise [GuardRefused]
    # @raise [Error::Misconfigured] if the database has no guard, or an older one
    # @return [void]
    def call(resource, fence, remaining, slot = 0)
      values = { resource: String(resource), fence: Integer(fence), remaining: Float(remaining) }
      values[:slot] = slot unless slot.zero?
      @connection.exec_query(slot.zero? ? SQL : SLOT_SQL, "Leasehold", binds(values))
      nil
    rescue ActiveRecord::StatementInvalid => error
      raise unless error.cause.is_a?(PG::UndefinedFunction)

      raise Error::Misconfigured, slot.zero? ? NO_GUARD : OLDER_GUARD
    end

    private

    # @return [Array<ActiveModel::Attribute>]
    def binds(values)
      values.map do |name, value|
        ActiveRecord::Relation::QueryAttribute.new(name.to_s, value, ActiveModel::Type::Value.new)
      end
    end
  end
end
