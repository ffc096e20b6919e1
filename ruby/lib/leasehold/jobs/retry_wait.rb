# frozen_string_literal: true

module Leasehold
  # How many seconds a job waits before it is run again, by its runs so far. Rails has the same under a name that is not
  # that of other versions: `:exponentially_longer`, `:polynomially_longer`.
  RETRY_WAIT = ->(executions) { executions**4 + 2 + rand * executions }
end
