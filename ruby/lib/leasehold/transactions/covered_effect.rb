# frozen_string_literal: true

module Leasehold
  module Transactions
    # The part of a transaction's net effect that a lease begun before BEGIN already covers
    # ({Leasehold::LeaseFirst}). The update of the transaction leaves these claims out.
    class CoveredEffect
      include ActiveRecordCompat::Participant

      attr_reader :effect

      def initialize(connection, effect)
        @connection = connection
        @effect = effect
      end

      # Compares the transaction with its lease even if no claim changed. {NetEffect#minus} raises if the
      # lease covers a change that did not happen.
      def before_committed!
        Update.begin(@connection) unless Update.begun?(@connection.current_transaction)
      end
    end
  end
end
