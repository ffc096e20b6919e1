# frozen_string_literal: true

module Leasehold
  # What shows itself without values of claims: where Ruby puts an object into an error's message, or somebody into a log, no
  # name of anybody gets there (V09). Whoever wants them asks for them.
  module Discreet
    # @return [String]
    def inspect
      shown = to_h.map { |name, value| "#{name}=#{name == :bucket_value ? "[FILTERED]" : value.inspect}" }
      "#<struct #{self.class} #{shown.join(', ')}>"
    end

    # As {#inspect}, which includers may say anew.
    def to_s
      inspect
    end

    # The same for `pp` and consoles, which ask a Struct for its members otherwise.
    def pretty_print(printer)
      printer.text(inspect)
    end
  end

  # What a cell claims or gives up: a bucket, whom it is for and the row that it comes out of. Wherever the client takes
  # a claim, a Hash with the same keys will do; a destroy may leave out subject and source.
  Claim = Struct.new(
    :bucket_type, :bucket_value, :subject_type, :subject_id, :source_type, :source_id, keyword_init: true
  ) do
    include Discreet

    # @return [Array(Integer, String)] the bucket, whatever the spelling of its value; as it is, where no rule allows that
    def bucket
      [bucket_type, Native.canonical_form(bucket_type, bucket_value)]
    rescue Error::Invalid, EncodingError
      [bucket_type, bucket_value]
    end
  end

  # A begun update: `uuid` settles it, `fence` is larger than that of every lease before.
  Lease = Struct.new(:uuid, :fence, keyword_init: true)

  # A lease that is begun and not settled, as the server lists it.
  OutstandingLease = Struct.new(:uuid, :created_at, :updated_at, keyword_init: true)

  # Some outstanding leases; `cursor` leads to the next page and is nil on the last. `server_time` is the server's
  # clock, by which the age of these leases is to be judged.
  LeasePage = Struct.new(:leases, :cursor, :server_time, keyword_init: true)

  # What a claim holds, as the server shows it.
  Record = Struct.new(:uuid, :claim, :cell_id, :status, :lease_uuid, :created_at, :updated_at, keyword_init: true) do
    include Discreet
  end

  # Some records of one table, in the order of their source ids; `truncated?` says that more remain.
  RecordPage = Struct.new(:records, :truncated, :server_time, keyword_init: true) do
    include Discreet

    alias_method :truncated?, :truncated

    # How many they are, not which.
    def inspect
      "#<#{self.class} of #{records&.size.to_i} records, truncated=#{truncated.inspect}, server_time=#{server_time.inspect}>"
    end
  end

  # One offending claim of a refused update: the list that it stands in (`:create` or `:destroy`), its position there
  # from 0, its bucket type, and the reason's code.
  RejectedClaim = Struct.new(:list, :position, :bucket_type, :code, keyword_init: true)
end
