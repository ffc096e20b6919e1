# frozen_string_literal: true

module Leasehold
  # The end of this process. After all of its hooks, Ruby kills the other threads, also those of gRPC. A call that an
  # `ensure` block of another thread then starts crashes the process, so it is refused.
  #
  # @api private
  module ProcessEnd
    @begun = false
    # Hooks run in reverse order: this one, made as the gem is loaded, comes after those of the application.
    at_exit { @begun = true }

    # @raise [Error::Unavailable]
    # @return [void]
    def self.check!
      raise Error::Unavailable.new("this process is ending: nothing is sent any more", code: "PROCESS_ENDING") if @begun
    end
  end
end
