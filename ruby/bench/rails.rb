# frozen_string_literal: true

# What the Rails side costs, with a real server and a real database: the processor's time that a save of 4 claims spends in
# the gem beyond its two calls, and how much of that in ActiveRecord and below, for its three statements; by how much the
# whole save takes more of it than with the feature flags off, which is also what Rails runs slower for waiting five times
# more often; and how fast a table that was never claimed is filled.
#
#   LEASEHOLD_BINARY=… ruby -I lib -I spec bench/rails.rb [--json] [--rows N] [--saves N]

require "json"
require "optparse"
require "timeout"

require "leasehold"
Dir[File.expand_path("../spec/support/*.rb", __dir__)].sort.each { |path| require path }

# The processor's time that calls take, from the request that is made to the answer that is there.
module Calls
  @seconds = 0.0

  class << self
    attr_accessor :seconds

    def now
      Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    end
  end

  def run(*)
    began = Calls.now
    super.tap { Calls.seconds += Calls.now - began }
  end
end

# The processor's time that passes in the gem, wherever Rails calls it: its statements included, its calls not.
class OwnTime
  # The models that {Saves} saves, and what of them is the gem's.
  HOOKS = %i[cells_claims_validate_values cells_claims_keep_created].freeze
  # What transactions tell.
  TOLD = %i[before_committed! committed!].freeze

  class << self
    # @return [Float]
    attr_reader :seconds
    # @return [Float] those of them that statements took
    attr_reader :statement_seconds

    def install
      Leasehold::Client::Call.prepend(Calls)
      [User, Email, Route].each { |model| watch(model, HOOKS) }
      [Leasehold::Transactions::Change, Leasehold::Transactions::Settlement].each { |kind| watch(kind, TOLD) }
      User.connection.class.prepend(Module.new { def execute(*) = OwnTime.state { super } })
    end

    def reset
      @seconds = 0.0
      @statement_seconds = 0.0
      @depth = 0
    end

    def state
      return yield if @depth.zero?

      began = Calls.now
      yield.tap { @statement_seconds += Calls.now - began }
    end

    def spend
      began = Calls.now if @depth.zero?
      @depth += 1
      yield
    ensure
      @depth -= 1
      @seconds += Calls.now - began if began
    end

    private

    def watch(kind, names)
      kind.prepend(Module.new do
        names.each { |name| define_method(name) { |*given, **named| OwnTime.spend { super(*given, **named) } } }
      end)
    end
  end

  reset
end

# Saves of a user with an email and a route: 4 claims.
class Saves
  TURNS = 15

  # @param count [Integer] of saves in all the turns, with claims and as many without
  def initialize(count)
    @count = count.fdiv(TURNS).ceil
    @number = 0
  end

  # Microseconds of a save: in the gem, those of them for its statements, and those that claiming adds to the whole; the two
  # calls left out of all. Medians of many short turns, with and without in each, since a machine's pace changes meanwhile.
  def measure
    OwnTime.install
    turn(true)
    turns = Array.new(TURNS) do
      with, own, statements = turn(true)
      [own, statements, with - turn(false).first]
    end
    own, statements, added = turns.transpose.map { |figures| figures.sort[TURNS / 2].round }
    { save_own_micros: own, save_statement_micros: statements, save_added_micros: added }
  end

  private

  def turn(enabled)
    Leasehold.configuration.feature_enabled { enabled }
    Calls.seconds = 0.0
    OwnTime.reset
    began = Calls.now
    @count.times { save }
    whole = Calls.now - began
    called = Calls.seconds
    [whole - called, OwnTime.seconds - called, OwnTime.statement_seconds].map { |seconds| seconds / @count * 1_000_000 }
  ensure
    Leasehold.configuration.feature_enabled { true }
  end

  def save
    name = "bench-#{@number += 1}"
    User.create!(username: name, emails: [Email.new(email: "#{name}@example.com")], routes: [Route.new(path: name)])
  end
end

# Claims a second at which a table of so many rows is claimed for the first time, two of each row.
def backfill(rows)
  ActiveRecord::Base.connection.execute(<<~SQL)
    TRUNCATE users; INSERT INTO users (id, username, created_at, updated_at)
    SELECT id, 'user-' || id, now() - interval '1 day', now() - interval '1 day'
    FROM generate_series(10000000, #{10_000_000 + rows - 1}) AS id
  SQL
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  report = Leasehold::Verifier.new(User).run
  raise "not all were claimed: #{report}" unless report[:created] == 2 * rows

  (2 * rows / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)).round
end

options = { rows: 100_000, saves: 1_500 }
OptionParser.new do |parser|
  parser.on("--json") { options[:json] = true }
  parser.on("--rows N", Integer) { |rows| options[:rows] = rows }
  parser.on("--saves N", Integer) { |saves| options[:saves] = saves }
end.parse!

Support::ClaimsServer.run do |server|
  Support::Cell[1].become(server.address, empty: true)
  saves = Saves.new(options[:saves]).measure
  result = { **saves, backfill_claims_per_second: backfill(options[:rows]) }
  puts options[:json] ? result.to_json : result.map { |name, figure| "#{name} #{figure}" }
end
