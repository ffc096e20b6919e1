# frozen_string_literal: true

require "google/protobuf"

module Leasehold
  # The messages and services of the wire contract, below `Contract::Gitlab`, `Contract::Leasehold` and
  # `Contract::Google`. Their code is generated into `leasehold/proto`.
  module Contract
    # The descriptors of these messages. google-protobuf's own pool refuses a second file of one name
    # (google-protobuf 3.21.12, ext/google/protobuf_c/defs.c: "duplicate file name"). With a pool of its own,
    # the gem loads before or after another gem of the same contract, such as GitLab's client.
    POOL = ::Google::Protobuf::DescriptorPool.new
  end
end
