# frozen_string_literal: true

module Leasehold
  module Transactions
    # Part of every model, since what any of them does when it is told of the COMMIT to come may change what is claimed: a
    # touch that Rails has put off, for example.
    module Ending
      # Told by ActiveRecord.
      def before_committed!
        Update.end(self.class.connection)
        super
      end
    end
  end
end
