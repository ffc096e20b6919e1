# frozen_string_literal: true

module Support
  # The guard of locks in the database of the specs.
  module Guard
    SQL = <<~SQL
      DROP TABLE leasehold_guards, leasehold_guard_slots;
      DROP FUNCTION IF EXISTS leasehold_guard(text, bigint, interval), leasehold_guard(text, bigint, interval, integer),
        leasehold_guard_check_time(), leasehold_guard_check_slot_time();
    SQL
    private_constant :SQL

    # Removes the guard, whose function of three arguments may be missing.
    def self.remove
      ActiveRecord::Base.connection.execute(SQL)
    end
  end
end
