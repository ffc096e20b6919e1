# frozen_string_literal: true

module Leasehold
  # A row's primary key as the bytes that stand for it in claims, and back.
  module SourceKey
    module_function

    # @param model [Class] the row's model
    # @param key [Integer, String]
    # @return [String] bytes in the keys' order
    def encode(_model, key)
      Native.encode_source_id(key)
    end
  end
end
