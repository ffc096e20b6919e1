# frozen_string_literal: true

module Leasehold
  # An error of the server, of the engine or of the call. {#code} selects the class and is the same
  # in every language, for example `CLAIM_TAKEN`.
  class Error < StandardError
    # @return [String, nil] the machine-readable reason
    attr_reader :code
    # @return [Array<RejectedClaim>] every rejected claim; empty if the whole request is rejected
    attr_reader :rejected
    # @return [Float, nil] seconds after which to try again; nil if unknown or useless
    attr_reader :retry_after_seconds
    # @return [Hash{String => String}] further machine-readable details, for example the limit that
    #   was exceeded
    attr_reader :metadata

    def initialize(message = nil, code: nil, rejected: [], retry_after_seconds: nil, metadata: {})
      super(message)
      @code = code
      @rejected = rejected
      @retry_after_seconds = retry_after_seconds
      @metadata = metadata
    end

    # @return [Array<Integer>] positions of the rejected claims among the creates
    def create_positions
      positions(:create)
    end

    # @return [Array<Integer>] positions of the rejected claims among the destroys
    def destroy_positions
      positions(:destroy)
    end

    # Returns true if the same request can succeed later without a change.
    def temporary?
      is_a?(Temporary)
    end

    private

    def positions(list)
      rejected.select { |claim| claim.list == list }.map(&:position)
    end
  end

  class Error
    # Builds the error for a code of the engine. The extension calls this method.
    #
    # @param rejected [Array<Array>] members of {RejectedClaim}
    # @param retry_after_micros [Integer, nil]
    # @return [Error]
    def self.from_engine(code, message, rejected, retry_after_micros = nil)
      claims = rejected.map do |list, position, bucket_type, reason|
        RejectedClaim.new(list: LISTS.fetch(list), position: position, bucket_type: bucket_type, code: reason)
      end
      seconds = retry_after_micros && retry_after_micros / 1e6
      BY_CODE.fetch(code, Internal).new(message, code: code, rejected: claims, retry_after_seconds: seconds)
    end

    # The gem's names of an update's two lists, by the engine's names.
    LISTS = { "creates" => :create, "destroys" => :destroy }.freeze

    # Marks errors that a later try can resolve.
    module Temporary; end

    # A setting, a model or a certificate is invalid.
    class Misconfigured < Error
      def initialize(message = nil, code: "MISCONFIGURED", **)
        super
      end
    end
    # The server has another store than the setting `store_id` names. The request had no effect, unless the server
    # does not tell its store.
    class OtherStore < Misconfigured
      def initialize(message = nil, code: "OTHER_STORE", **)
        super
      end
    end
    # The request is malformed, exceeds a limit, or contains a value that is not allowed.
    class Invalid < Error; end
    # The row has no primary key yet, so no claim can name it.
    class MissingPrimaryKey < Invalid; end
    # The bucket is owned by another row or cell.
    class Taken < Error; end
    # The bucket is under another lease.
    class Busy < Error
      include Temporary
    end
    # The claim to destroy now belongs to another source row.
    class Changed < Error; end
    # The claim or the lease does not exist; the code tells which.
    class NotFound < Error; end
    # The claim or the lease belongs to another cell.
    class NotOwner < Error; end
    # The lease to commit was rolled back.
    class RolledBack < Error; end
    # The lease to roll back was committed.
    class Committed < Error; end
    # The caller presented no certificate with an identity.
    class Unauthenticated < Error; end
    # The caller's certificate does not allow this call.
    class Denied < Error; end
    # Too many requests are in flight, in this process or at the server.
    class Overloaded < Error
      include Temporary
    end
    # The server cannot be reached, or its store is down. The request may have taken effect.
    class Unavailable < Error
      include Temporary
    end
    # Too many calls in a row failed, so this one was not sent.
    class CircuitOpen < Unavailable; end
    # No answer came within the deadline. The request may have taken effect.
    class DeadlineExceeded < Error
      include Temporary
    end
    # Marks errors after which another process may hold the lock, or have the requests: stop the work.
    module LockLost; end

    # The session was never opened, or ended so long ago that the server has forgotten it.
    class SessionNotFound < NotFound
      include LockLost
    end
    # The session has ended, and its locks and requests have passed on.
    class SessionEnded < NotFound
      include LockLost
    end
    # The deadline of this process's session has passed, by this process's own clock.
    class SessionLost < Error
      include LockLost
    end
    # Another service opened the session.
    class SessionNotOwned < NotOwner; end
    # The id of the session was used with other terms.
    class SessionReused < Invalid; end
    # The session has renewed, so it was not ended.
    class SessionAlive < Changed; end
    # The id of the ask was used for another lock, or the ask has ended.
    class AskReused < Invalid; end
    # The lock or the batch is not held under this fence any more.
    class FencePassed < Changed
      include LockLost
    end
    # The lock did not become free in time.
    class LockHeld < Busy; end
    # The lock was taken from its former holder, whose time is not over.
    class LockWithheld < Busy; end
    # The thread waited for a lock whose holder waited for a lock of this thread.
    class LockCircle < Changed; end

    # This process was forked from one that had made a call. gRPC's core does not support that.
    class Forked < Error; end
    # A defect of the gem, the engine or the server.
    class Internal < Error; end

    # Error classes by code.
    BY_CODE = {
      "INVALID_ARGUMENT" => Invalid,
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
      "SESSION_NOT_FOUND" => SessionNotFound,
      "SESSION_NOT_OWNED" => SessionNotOwned,
      "SESSION_ENDED" => SessionEnded,
      "SESSION_REUSED" => SessionReused,
      "SESSION_ALIVE" => SessionAlive,
      "ASK_REUSED" => AskReused,
      "FENCE_PASSED" => FencePassed,
      "LOCK_HELD" => LockHeld,
      "LOCK_WITHHELD" => LockWithheld,
      "LOCK_CIRCLE" => LockCircle,
      "SESSION_LOST" => SessionLost,
      "NO_IDENTITY" => Unauthenticated,
      "RULE_DENIED" => Denied,
      "OTHER_STORE" => OtherStore,
      "OVERLOADED" => Overloaded,
      "STORE_UNAVAILABLE" => Unavailable
    }.freeze
  end
end
