# frozen_string_literal: true

module Leasehold
  # What the server, the engine or the way to them refused. The class is chosen by {#code}, which is the same in every
  # language: `CLAIM_TAKEN`, for example.
  class Error < StandardError
    # @return [String, nil] the reason, for machines
    attr_reader :code
    # @return [Array<RejectedClaim>] every offending claim; empty where the request as a whole offends
    attr_reader :rejected
    # @return [Float, nil] when to try again, where that can help
    attr_reader :retry_after_seconds
    # @return [Hash{String => String}] more for machines: the limit that was passed, for example
    attr_reader :metadata

    def initialize(message = nil, code: nil, rejected: [], retry_after_seconds: nil, metadata: {})
      super(message)
      @code = code
      @rejected = rejected
      @retry_after_seconds = retry_after_seconds
      @metadata = metadata
    end

    # @return [Array<Integer>] positions of the offending claims among the creates
    def create_positions
      positions(:create)
    end

    # @return [Array<Integer>] positions of the offending claims among the destroys
    def destroy_positions
      positions(:destroy)
    end

    # Whether the same request can succeed later without anybody's decision.
    def temporary?
      is_a?(Temporary)
    end

    private

    def positions(list)
      rejected.select { |claim| claim.list == list }.map(&:position)
    end
  end

  class Error
    # The error for a code.
    #
    # @param rejected [Array<Array>] members of {RejectedClaim}
    # @return [Error]
    def self.refusal(code, message, rejected)
      claims = rejected.map do |list, position, bucket_type, reason|
        RejectedClaim.new(list: LISTS.fetch(list), position: position, bucket_type: bucket_type, code: reason)
      end
      BY_CODE.fetch(code, Internal).new(message, code: code, rejected: claims)
    end

    # Names of the lists of an update, as the engine says them.
    LISTS = { "creates" => :create, "destroys" => :destroy }.freeze

    # Marks what another try may mend.
    module Temporary; end

    # The configuration cannot work; nothing was sent.
    class Misconfigured < Error
      def initialize(message = nil, code: "MISCONFIGURED", **)
        super
      end
    end
    # The request's form is wrong, a limit is passed, or a value is not allowed.
    class Invalid < Error; end
    # The bucket is owned, for good.
    class Taken < Error; end
    # The bucket is under another lease, for now.
    class Busy < Error
      include Temporary
    end
    # The claim to destroy has moved to another source row.
    class Changed < Error; end
    # There is no such claim, or no such lease: the code says which.
    class NotFound < Error; end
    # The claim or the lease is another cell's.
    class NotOwner < Error; end
    # The lease to commit was rolled back.
    class RolledBack < Error; end
    # The lease to roll back was committed.
    class Committed < Error; end
    # No certificate says who calls.
    class Unauthenticated < Error; end
    # The certificate does not allow this call.
    class Denied < Error; end
    # Too much is under way, here or at the server.
    class Overloaded < Error
      include Temporary
    end
    # The server cannot be reached, or its store is down. Whether the request took effect is unknown.
    class Unavailable < Error
      include Temporary
    end
    # Calls failed so often that none is made for a while.
    class CircuitOpen < Unavailable; end
    # No answer in time. Whether the request took effect is unknown.
    class DeadlineExceeded < Error
      include Temporary
    end
    # The process was forked from one that had called already, which gRPC's core does not survive.
    class Forked < Error; end
    # A defect on either side of the border.
    class Internal < Error; end

    # Codes, and the classes that they choose.
    BY_CODE = {
      "INVALID_UPDATE" => Invalid,
      "LIMIT_EXCEEDED" => Invalid,
      "VALUE_NOT_ALLOWED" => Invalid,
      "IDEMPOTENCY_KEY_REUSED" => Invalid,
      "INVALID_CHECKPOINT" => Invalid,
      "CLAIM_TAKEN" => Taken,
      "CLAIM_BUSY" => Busy,
      "CLAIM_CHANGED" => Changed,
      "CLAIM_NOT_FOUND" => NotFound,
      "LEASE_NOT_FOUND" => NotFound,
      "NOT_OWNER" => NotOwner,
      "LEASE_ROLLED_BACK" => RolledBack,
      "LEASE_COMMITTED" => Committed,
      "NO_IDENTITY" => Unauthenticated,
      "RULE_DENIED" => Denied,
      "OVERLOADED" => Overloaded,
      "STORE_UNAVAILABLE" => Unavailable
    }.freeze
  end
end
