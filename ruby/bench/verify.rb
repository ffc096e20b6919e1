# frozen_string_literal: true

# Measures the comparison of claims with rows, page by page: the extension against the algorithm
# that cells used first, in plain Ruby. That algorithm puts the records into a Hash by bucket, and
# removes those that rows make. All competitors compare the same pages in turns, and the best of
# three runs counts. The time is processor time for the comparison with its conversions, without
# building the pages.
#
# The extension gets the server's records as encoded bytes, like a verification does. The competitor
# `objects` gets Structs instead. Plain Ruby gets Structs too, and here it need not build them, as a
# cell would have to.
#
#     ruby -I lib bench/verify.rb [--json] [--claims N]

require "json"
require "optparse"

require "leasehold"
require "leasehold/client"

ROWS_PER_PAGE = 1000
TYPES = [4, 5, 1, 10].freeze # usernames, emails, routes, user ids
USER = 4
USERS_TABLE = 1
RECENT_SECONDS = 3600
NOW = Time.now
OLD = NOW - 7 * 86_400

# A page: its rows as `pluck` and as `select_all` return them, and its records as objects and as the
# server's encoded answer.
Page = Struct.new(:arrays, :hashes, :records, :answer, :last)

def page(number)
  ids = ((number * ROWS_PER_PAGE) + 1..(number + 1) * ROWS_PER_PAGE)
  arrays = ids.map { |id| [id, "user-#{id}", "user-#{id}@example.com", "group-#{id}", OLD] }
  hashes = arrays.map { |row| %w[id username email path updated_at].zip(row).to_h }
  records = arrays.flat_map { |row| records(row) }
  Page.new(arrays, hashes, records, answer(records), ids.last)
end

# Encodes a page of records like the server's answer.
def answer(records)
  v1 = Leasehold::Client::Messages::V1
  old = { seconds: OLD.to_i, nanos: OLD.nsec }
  messages = records.map do |record|
    claim = record.claim
    v1::Record.new(
      uuid: { value: record.uuid }, cell_id: 1, status: :ACTIVE, created_at: old, updated_at: old,
      metadata: {
        bucket: { type: claim.bucket_type, value: claim.bucket_value },
        subject: { type: claim.subject_type, id: claim.subject_id },
        source: { type: claim.source_type, rails_primary_key_id: claim.source_id }
      }
    )
  end
  encoded = v1::ListRecordsResponse.encode(v1::ListRecordsResponse.new(records: messages))
  Leasehold::Client::ReceivedPage.new(encoded, NOW, nil)
end

def records(row)
  source_id = [row[0]].pack("Q>")
  values = [row[1], row[2], row[3], row[0].to_s]
  TYPES.zip(values).sort.map do |type, value|
    claim = Leasehold::Claim.new(
      bucket_type: type, bucket_value: value.dup, subject_type: USER, subject_id: row[0], source_type: USERS_TABLE,
      source_id: source_id
    )
    Leasehold::Record.new(uuid: "", claim: claim, cell_id: 1, status: :ACTIVE, created_at: OLD, updated_at: OLD)
  end
end

# The comparison in plain Ruby.
class PlainComparison
  Expected = Struct.new(:type, :value, :subject_type, :subject_id, :source_type, :source_id)

  attr_reader :differences

  def initialize
    @differences = 0
    @threshold = NOW - RECENT_SECONDS
  end

  def compare(page)
    by_key = page.records.to_h { |record| [key(record.claim.bucket_type, record.claim.bucket_value), record] }
    page.arrays.each { |row| compare_row(row, by_key) unless row[4] > @threshold }
    @differences += by_key.each_value.count { |record| record.updated_at <= @threshold }
  end

  private

  def compare_row(row, by_key)
    source_id = [row[0]].pack("Q>")
    [[4, row[1]], [5, row[2]], [1, row[3]], [10, row[0].to_s]].each do |type, value|
      expected = Expected.new(type, value, USER, row[0], USERS_TABLE, source_id)
      record = by_key.delete(key(type, value))
      @differences += 1 unless record && match?(expected, record.claim)
    end
  end

  def key(type, value)
    "#{type}/#{value}"
  end

  def match?(expected, claim)
    expected.type == claim.bucket_type && expected.value == claim.bucket_value &&
      expected.subject_type == claim.subject_type && expected.subject_id == claim.subject_id &&
      expected.source_type == claim.source_type && expected.source_id == claim.source_id
  end
end

# The comparison by the extension, in the steps of a verification job.
class EngineComparison
  ARRAYS = { key: 0, updated_at: 4, claims: [[4, 1, USER, 0], [5, 2, USER, 0], [1, 3, USER, 0], [10, 0, USER, 0]] }.freeze
  HASHES = {
    key: "id", updated_at: "updated_at",
    claims: [[4, "username", USER, "id"], [5, "email", USER, "id"], [1, "path", USER, "id"], [10, "id", USER, "id"]]
  }.freeze

  def initialize(shape)
    @shape = shape
    @session = Leasehold::Verification.new(
      source_type: USERS_TABLE, bucket_types: TYPES, recent_within_seconds: RECENT_SECONDS, rows_per_page: ROWS_PER_PAGE
    )
  end

  def compare(page)
    @session.proceed if @session.next.is_a?(Leasehold::Verification::PageDone)
    @session.bound([page.last].pack("Q>"))
    @session.records(records(page))
    case @shape
    when :hashes then @session.attributes(page.hashes, now: NOW, **HASHES)
    else @session.attributes(page.arrays, now: NOW, **ARRAYS)
    end
  end

  def differences
    @session.report.values_at(:missing, :different, :extra).sum
  end

  private

  def records(page)
    return page.answer unless @shape == :objects

    Leasehold::RecordPage.new(records: page.records, truncated: false, server_time: NOW)
  end
end

def resident_kilobytes
  File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i
end

# Returns the seconds spent comparing, and the growth of memory in MB after the first tenth of the
# pages.
def measure(subject, pages)
  seconds = 0.0
  early = nil
  pages.times do |number|
    compared_page = page(number)
    start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    subject.compare(compared_page)
    seconds += Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - start
    early = settled_kilobytes if number == pages / 10
  end
  raise "found #{subject.differences} differences, expected none" unless subject.differences.zero?

  [seconds, (settled_kilobytes - early) / 1024.0]
end

def settled_kilobytes
  GC.start
  resident_kilobytes
end

options = { claims: 200_000, json: false }
OptionParser.new do |parser|
  parser.on("--json")
  parser.on("--claims N", Integer)
end.parse!(into: options)

pages = options[:claims] / TYPES.size / ROWS_PER_PAGE
subjects = {
  "plain" => -> { PlainComparison.new }, "arrays" => -> { EngineComparison.new(:arrays) },
  "hashes" => -> { EngineComparison.new(:hashes) }, "objects" => -> { EngineComparison.new(:objects) }
}
turns = Array.new(3) { subjects.transform_values { |subject| measure(subject.call, pages) } }
measured = subjects.to_h { |name, _| [name, turns.map { |turn| turn.fetch(name) }] }
rates = measured.transform_values { |runs| (options[:claims] / runs.map(&:first).min).round }
growth = measured.transform_values { |runs| runs.map(&:last).max.round(1) }
ratio = (rates.values_at("arrays", "hashes").min.to_f / rates["plain"]).round(2)

if options[:json]
  ours = rates.values_at("arrays", "hashes").min
  puts JSON.generate(ours: ours, peer: rates["plain"], ratio: ratio, rates: rates, growth_mb: growth)
else
  rates.each { |name, rate| puts format("%-8s %10d claims/s, memory %+.1f MB", name, rate, growth[name]) }
  puts format("ratio    %10.2f", ratio)
end
