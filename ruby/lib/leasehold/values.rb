# frozen_string_literal: true

module Leasehold
  # Replaces `inspect` by one without the values of claims, and without the keys and values of locks
  # and requests: Ruby and logs include `inspect` in messages, and no user's name may get there (V09, K24, Q22). Read the members to get
  # the values.
  module FilteredInspect
    # The members that are hidden.
    FILTERED = %i[bucket_value key value body].freeze
    private_constant :FILTERED

    # @return [String]
    def inspect
      shown = to_h.map { |name, value| "#{name}=#{FILTERED.include?(name) ? "[FILTERED]" : value.inspect}" }
      "#<struct #{self.class} #{shown.join(', ')}>"
    end

    # Calls {#inspect}, because `Struct#to_s` is an alias of the original `inspect`.
    def to_s
      inspect
    end

    # Prints {#inspect} for `pp` and consoles, which would otherwise print the members of a Struct.
    def pretty_print(printer)
      printer.text(inspect)
    end
  end

  # A claim: the bucket, its subject, and the source row. Wherever the client takes a claim, a Hash
  # with the same keys works too. A claim to destroy may omit subject and source.
  Claim = Struct.new(
    :bucket_type, :bucket_value, :subject_type, :subject_id, :source_type, :source_id, keyword_init: true
  ) do
    include FilteredInspect

    # @return [Array(Integer, String)] bucket type and canonical value, equal for all spellings; the
    #   value unchanged if the bucket type's rule does not allow it
    def bucket
      [bucket_type, Native.canonical_form(bucket_type, bucket_value)]
    rescue Error::Invalid, EncodingError
      [bucket_type, bucket_value]
    end
  end

  # The lease of a begun update. `uuid` identifies it in commit and rollback; `fence` is greater
  # than that of every earlier lease (B13).
  Lease = Struct.new(:uuid, :fence, keyword_init: true)

  # A lease that is begun and not settled, as the server lists it.
  OutstandingLease = Struct.new(:uuid, :created_at, :updated_at, keyword_init: true)

  # A page of outstanding leases. `cursor` requests the next page and is nil on the last one.
  # `server_time` is the server's clock, by which the ages of these leases are judged (R03). `server_version` is nil
  # if the server does not tell it.
  LeasePage = Struct.new(:leases, :cursor, :server_time, :server_version, keyword_init: true)

  # A claim with its owner and state, as the server returns it.
  Record = Struct.new(:uuid, :claim, :cell_id, :status, :lease_uuid, :created_at, :updated_at, keyword_init: true) do
    include FilteredInspect
  end

  # A page of records of one table, in the order of their source ids. `truncated?` returns true if
  # more records follow in the range.
  RecordPage = Struct.new(:records, :truncated, :server_time, keyword_init: true) do
    include FilteredInspect

    alias_method :truncated?, :truncated

    # Returns the number of records instead of the records.
    def inspect
      "#<#{self.class} of #{records&.size.to_i} records, truncated=#{truncated.inspect}, server_time=#{server_time.inspect}>"
    end
  end

  # A rejected claim of an update: its list (`:create` or `:destroy`), its position in the list from
  # 0, its bucket type and the code of the reason.
  RejectedClaim = Struct.new(:list, :position, :bucket_type, :code, keyword_init: true)

  # A lock as the server stores it. `state` is `:free`, `:held`, or `:withheld` if the lock was taken from its
  # holder, whose time is not over. It is `:orphaned` if the lock waits for a cleanup, and `:set_aside` if the cleanup
  # has failed too often. `fence` is that of the grant, nil if there is none; `session_id` is the holder's. `waiting`
  # counts those that wait. `last` is the {EndedGrant} that ended last, or nil. `obituary` is the {Obituary} of the
  # grant whose cleanup is due, or nil.
  #
  # The state is `:shared` if each holder has a slot, which is a LockStatus with its number as `slot`; a lock itself has
  # 0. `taken_slots` counts the slots that are not free. `permits` is the number of permits while slots are taken, 0 if
  # the lock is shared as readers do (K13).
  LockStatus = Struct.new(
    :namespace, :key, :state, :fence, :session_id, :updated_at, :waiting, :last, :obituary, :slot, :taken_slots, :permits,
    keyword_init: true
  ) do
    include FilteredInspect
  end

  # A grant of a lock that has ended. `reason` is `:succeeded`, `:failed`, `:left`, `:closed`, `:expired`,
  # `:evicted` or `:forced`. `value` is what the holder gave with its release (K03).
  EndedGrant = Struct.new(:fence, :reason, :value, :ended_at, keyword_init: true) do
    include FilteredInspect
  end

  # A grant whose holder has died, and whose cleanup has not succeeded yet. `reason` is the end of the grant: `:closed`,
  # `:expired`, `:evicted` or `:forced`. `attempts` is the number of cleanups that were begun. After `most_attempts` the
  # lock is set aside (K17).
  Obituary = Struct.new(:fence, :reason, :ended_at, :attempts, :most_attempts, keyword_init: true)

  # A page of locks, in the order of namespace and key. `truncated?` returns true if more locks follow.
  LockPage = Struct.new(:locks, :truncated, keyword_init: true) do
    alias_method :truncated?, :truncated
  end

  # A request that was submitted, or the first create of the same resource. `new?` returns true if the call made it.
  SubmittedRequest = Struct.new(:id, :is_new, keyword_init: true) do
    alias_method :new?, :is_new
  end

  # A request of a {Batch}. `attempt` is the number of the attempt, 1 for the first. `body` has binary encoding.
  TakenRequest = Struct.new(:id, :attempt, :body, keyword_init: true) do
    include FilteredInspect
  end

  # A request as the server stores it. `state` is `:new`, `:in_progress`, `:complete` or `:error`. `number` is its place
  # in its lane, and it is not taken before `not_before`. `body` is nil unless {Queues#request} was called with `body: true`.
  RequestStatus = Struct.new(
    :id, :queue, :key, :number, :kind, :priority, :state, :not_before, :attempts, :max_attempts, :body_bytes, :submitted_at,
    :updated_at, :body, keyword_init: true
  ) do
    include FilteredInspect
  end

  # A page of requests. `cursor` requests the next page and is nil on the last one.
  RequestPage = Struct.new(:requests, :cursor, keyword_init: true)

  # The requests of one key as the server stores them. `waiting` is the number of those that wait. `session_id`, `fence`
  # and `taken_at` are those of the worker, nil if there is none. `not_before` is nil if none waits, or the lane is taken.
  LaneStatus = Struct.new(
    :queue, :key, :paused, :waiting, :not_before, :session_id, :fence, :taken_at, :updated_at, keyword_init: true
  ) do
    include FilteredInspect

    alias_method :paused?, :paused
  end

  # A page of lanes. `cursor` requests the next page and is nil on the last one.
  LanePage = Struct.new(:lanes, :cursor, keyword_init: true)

  # A queue as the server stores it. `limit` is the most lanes that are taken at a time, nil for any number. `taken`
  # counts those that were taken since the queue has a limit.
  QueueStatus = Struct.new(:paused, :limit, :taken, keyword_init: true) do
    alias_method :paused?, :paused
  end
end
