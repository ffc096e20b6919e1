# frozen_string_literal: true

module Leasehold
  # What a cell claims or gives up: a bucket, whom it is for and the row that it comes out of. Wherever the client takes
  # a claim, a Hash with the same keys will do; a destroy may leave out subject and source.
  Claim = Struct.new(
    :bucket_type, :bucket_value, :subject_type, :subject_id, :source_type, :source_id, keyword_init: true
  ) do
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
  Record = Struct.new(:uuid, :claim, :cell_id, :status, :lease_uuid, :created_at, :updated_at, keyword_init: true)

  # Some records of one table, in the order of their source ids; `truncated?` says that more remain.
  RecordPage = Struct.new(:records, :truncated, :server_time, keyword_init: true) do
    alias_method :truncated?, :truncated
  end

  # One offending claim of a refused update: the list that it stands in (`:create` or `:destroy`), its position there
  # from 0, its bucket type, and the reason's code.
  RejectedClaim = Struct.new(:list, :position, :bucket_type, :code, keyword_init: true)
end
