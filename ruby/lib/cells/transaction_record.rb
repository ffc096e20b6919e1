# frozen_string_literal: true

module Cells
  # The names of the errors that code for GitLab's concern rescues when a save is refused.
  module TransactionRecord
    # An ancestor of every error with which a save is refused for its claims: {Leasehold::ClaimsRejected} and
    # {Leasehold::Error}.
    module Error; end

    # An ancestor of {Leasehold::ClaimsTaken}.
    module AlreadyClaimedError
      include Error
    end
  end
end
