# frozen_string_literal: true

module Leasehold
  module Transactions
    # Goes with a transaction whose lease was begun before it: what that lease covers needs no other.
    class Covered
      include Record

      attr_reader :effect

      def initialize(connection, effect)
        @connection = connection
        @effect = effect
      end

      # The transaction has to do what the lease says, even if it has changed nothing.
      def before_committed!
        Update.begin(@connection) unless Update.begun?(@connection.current_transaction)
      end
    end
  end
end
