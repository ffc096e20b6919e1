# frozen_string_literal: true

module Leasehold
  module Transactions
    # Included in every model, with claims or without: records that the transaction is committing before
    # the model's own `before_committed!` runs. Any model may change a claim there. Example: ActiveRecord
    # executes deferred touches then (activerecord 6.1.7.10, touch_later.rb:6).
    module CommitMarker
      # Runs immediately before COMMIT (activerecord 6.1.7.10,
      # connection_adapters/abstract/transaction.rb:143).
      def before_committed!
        Update.mark_committing(self.class.connection)
        super
      end
    end
  end
end
