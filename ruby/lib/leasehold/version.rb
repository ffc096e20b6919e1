# frozen_string_literal: true

module Leasehold
  # The version of the gem and of the engine in it.
  VERSION = "0.1.0"
end
