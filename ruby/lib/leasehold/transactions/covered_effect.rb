# frozen_string_literal: true

module Leasehold
  module Transactions
    # The part of a transaction's net effect that a lease begun before BEGIN already covers
    # ({Leasehold::LeaseFirst}). The update of the transaction leaves these claims out.
    class CoveredEffect
      include ActiveRecordCompat::Participant

      attr_reader :effect

      # @param effect [NetEffect]
      def initialize(effect)
        @effect = effect
      end
    end
  end
end
