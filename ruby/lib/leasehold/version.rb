# frozen_string_literal: true

module Leasehold
  # The version of the gem; the engine that it carries has the same.
  VERSION = "0.1.0"
end
