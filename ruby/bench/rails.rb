# frozen_string_literal: true

# Measures the cost of the Rails integration, with a real server and a real database:
#
# - the processor time that a save of 4 claims spends in the gem, without its two calls
# - the part of that time spent in the gem's three SQL statements
# - the processor time by which claims lengthen the whole save, compared to switched off feature
#   flags
# - the rate at which verification claims a table for the first time
#
#     LEASEHOLD_BINARY=… ruby -I lib -I spec bench/rails.rb [--json] [--rows N] [--saves N]

require "json"
require "optparse"
require "timeout"

require "leasehold"
Dir[File.expand_path("../spec/support/*.rb", __dir__)].sort.each { |path| require path }

# Adds up the processor time of calls, from building the request to receiving the answer.
module CallTime
  @seconds = 0.0

  class << self
    attr_accessor :seconds

    def now
      Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    end
  end

  def run(*)
    started = CallTime.now
    super.tap { CallTime.seconds += CallTime.now - started }
  end
end

# Adds up the processor time spent in the gem's methods that Rails calls, including their SQL
# statements and calls.
class GemTime
  # The gem's methods in the models that {Saves} saves.
  HOOKS = %i[cells_claims_validate_values cells_claims_after_insert].freeze

  class << self
    # @return [Float]
    attr_reader :seconds
    # @return [Float] the part of {seconds} spent in SQL statements
    attr_reader :statement_seconds

    def install
      Leasehold::Client::Call.prepend(CallTime)
      [User, Email, Route].each { |model| watch(model, HOOKS) }
      watch(Leasehold::Transactions::Update.singleton_class, %i[begin check_complete])
      watch(Leasehold::Transactions::Settlement.singleton_class, %i[check_alive])
      watch(Leasehold::Transactions::Settlement, %i[committed!])
      User.connection.class.prepend(Module.new { def execute(*) = GemTime.statement { super } })
    end

    def reset
      @seconds = 0.0
      @statement_seconds = 0.0
      @depth = 0
    end

    def statement
      return yield if @depth.zero?

      started = CallTime.now
      yield.tap { @statement_seconds += CallTime.now - started }
    end

    def measure
      started = CallTime.now if @depth.zero?
      @depth += 1
      yield
    ensure
      @depth -= 1
      @seconds += CallTime.now - started if started
    end

    private

    # @raise [NameError] if the owner has no method of one of the names
    def watch(owner, names)
      names.each { |name| owner.instance_method(name) }
      owner.prepend(Module.new do
        names.each do |name|
          define_method(name) { |*arguments, **keywords| GemTime.measure { super(*arguments, **keywords) } }
        end
      end)
    end
  end

  reset
end

# Saves users with an email and a route each: 4 claims.
class Saves
  TURNS = 15

  # @param count [Integer] number of saves with claims, over all turns; as many are made without
  #   claims
  def initialize(count)
    @count = count.fdiv(TURNS).ceil
    @number = 0
  end

  # Returns microseconds per save, without the two calls: spent in the gem, spent in its SQL
  # statements, and added by claims to the whole save. Each is the median of many short turns. A
  # turn measures with and without claims, because a machine's speed varies over time.
  def measure
    GemTime.install
    turn(true)
    turns = Array.new(TURNS) do
      with_claims, in_gem, in_statements = turn(true)
      [in_gem, in_statements, with_claims - turn(false).first]
    end
    in_gem, in_statements, added = turns.transpose.map { |values| values.sort[TURNS / 2].round }
    { save_own_micros: in_gem, save_statement_micros: in_statements, save_added_micros: added }
  end

  private

  def turn(enabled)
    Leasehold.configuration.feature_enabled { enabled }
    CallTime.seconds = 0.0
    GemTime.reset
    started = CallTime.now
    @count.times { save }
    total = CallTime.now - started
    in_calls = CallTime.seconds
    [total - in_calls, GemTime.seconds - in_calls, GemTime.statement_seconds].map { |seconds| seconds / @count * 1_000_000 }
  ensure
    Leasehold.configuration.feature_enabled { true }
  end

  def save
    name = "bench-#{@number += 1}"
    User.create!(username: name, emails: [Email.new(email: "#{name}@example.com")], routes: [Route.new(path: name)])
  end
end

# Measures the first claiming of a table with two claims a row, in claims per second.
def backfill(rows)
  ActiveRecord::Base.connection.execute(<<~SQL)
    TRUNCATE users; INSERT INTO users (id, username, created_at, updated_at)
    SELECT id, 'user-' || id, now() - interval '1 day', now() - interval '1 day'
    FROM generate_series(10000000, #{10_000_000 + rows - 1}) AS id
  SQL
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  report = Leasehold::Verifier.new(User).run
  raise "rows were left without claims: #{report}" unless report[:created] == 2 * rows

  (2 * rows / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)).round
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
  puts options[:json] ? result.to_json : result.map { |name, value| "#{name} #{value}" }
end
