# frozen_string_literal: true

# What the Rails side costs, with a real server and a real database: the processor's time of a save that claims 4 values
# beyond its two calls, against the same save with the feature flags off; and how fast a table that was never claimed is
# filled.
#
#   LEASEHOLD_BINARY=… ruby -I lib -I spec bench/rails.rb [--json] [--rows N] [--saves N]

require "json"
require "optparse"
require "timeout"

require "leasehold"
Dir[File.expand_path("../spec/support/*.rb", __dir__)].sort.each { |path| require path }

# The processor's time that passes while watched notifications are under way.
class Watch
  attr_reader :seconds

  def initialize(pattern)
    @seconds = 0.0
    @subscription = ActiveSupport::Notifications.subscribe(pattern, self)
  end

  def start(*)
    @began = Watch.now
  end

  def finish(*)
    @seconds += Watch.now - @began
  end

  def stop
    ActiveSupport::Notifications.unsubscribe(@subscription)
    @seconds
  end

  def self.now
    Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  end
end

# Saves of a user with an email and a route: 4 claims.
class Saves
  TURNS = 15

  # @param count [Integer] of saves in all the turns, with claims and as many without
  def initialize(count)
    @count = count.fdiv(TURNS).ceil
    @number = 0
  end

  # Microseconds of Ruby and Rust that claiming adds to a save, its two calls left out; the median of many short turns, with
  # and without in each, since a machine's pace changes meanwhile.
  def own_micros
    turn(true)
    Array.new(TURNS) { turn(true) - turn(false) }.sort[TURNS / 2].round
  end

  private

  def turn(enabled)
    Leasehold.configuration.feature_enabled { enabled }
    measure / @count * 1_000_000
  ensure
    Leasehold.configuration.feature_enabled { true }
  end

  def measure
    calls = Watch.new(/\A(begin|commit)_update\.leasehold\z/)
    began = Watch.now
    @count.times { save }
    Watch.now - began - calls.stop
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
  result = { save_own_micros: Saves.new(options[:saves]).own_micros, backfill_claims_per_second: backfill(options[:rows]) }
  puts options[:json] ? result.to_json : result.map { |name, figure| "#{name} #{figure}" }
end
