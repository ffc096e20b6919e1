# frozen_string_literal: true

module Leasehold
  # Seconds to wait before a job is retried, by its number of executions. Rails has the same
  # algorithm, as `:exponentially_longer` until 7.0 (activejob 6.1.7.10, exceptions.rb:136) and as
  # `:polynomially_longer` from 7.1 on.
  RETRY_WAIT = ->(executions) { executions**4 + 2 + rand * executions }
  private_constant :RETRY_WAIT
end
