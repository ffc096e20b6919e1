# frozen_string_literal: true

require "active_job"
require "timeout"
require "spec_helper"

# The test command sets `LEASEHOLD_RAILS` to the version of Rails that the load path must have.
wanted = ENV.fetch("LEASEHOLD_RAILS", "")
raise "the load path leads to Rails #{ActiveJob::VERSION::STRING}, not to #{wanted}" unless ActiveJob::VERSION::STRING.start_with?(wanted)

# Helpers of the Rails specs: the application in `rails_app` as cells 1 and 2. Each example has a
# server of its own.
module RailsSpecs
  CELLS = [1, 2].freeze
  # The deadline of the specs' own reads, whatever deadline an example sets for the calls under test.
  READ_DEADLINE_SECONDS = 30

  attr_reader :server

  # Turns this process into one of the cells.
  def become(id, **options)
    Support::Cell[id].become(server.address, **options)
  end

  # Runs the block as another cell.
  def as_cell(id)
    before = Leasehold.configuration.cell_id
    become(id)
    yield
  ensure
    become(before)
  end

  def start_server
    Leasehold.configuration.transactional_tests = false
    @server = Support::ClaimsServer.new.start
    CELLS.reverse_each { |id| become(id, empty: true) }
  end

  def clear_server
    Leasehold.reset_client
    server.clear
  end

  # Takes the subclasses of an example out of their model's table. Ruby frees a class some time later; until
  # then its claims would count as the model's.
  def discard_subclasses
    [User, Email, Route, Key].flat_map(&:descendants).each { |subclass| subclass.table_name = "discarded" }
  end

  # @return [Array<String>] the values that the current cell claims for a model's attribute,
  #   including those under a lease
  def claimed(model, attribute)
    records(model, attribute).map { |record| record.claim.bucket_value }.sort
  end

  def records(model, attribute)
    type = model.cells_claims_declarations.fetch(attribute).type
    Leasehold.client.list_records(
      source_type: model.cells_claims_source_type, bucket_types: [type], deadline_seconds: READ_DEADLINE_SECONDS
    ).records
  end

  # Runs the block with a deadline that its calls await in vain. The long one is back as soon as a begin has ended.
  def with_short_deadline
    before = Leasehold.configuration.request_deadline_seconds
    Leasehold.configuration.request_deadline_seconds = 0.3
    restore = ->(*) { Leasehold.configuration.request_deadline_seconds = before }
    ActiveSupport::Notifications.subscribed(restore, "begin_update.leasehold") { yield }
  ensure
    restore.call
  end

  def outstanding_leases
    Leasehold.client.list_leases(deadline_seconds: READ_DEADLINE_SECONDS).leases.map(&:uuid)
  end

  def lease_rows(base = ActiveRecord::Base)
    base.connection.uncached { base.connection.select_values("SELECT uuid FROM cells_outstanding_leases") }
  end

  # Inserts users without callbacks, with an old change time.
  def insert_users(ids)
    ActiveRecord::Base.connection.execute(<<~SQL)
      INSERT INTO users (id, username, created_at, updated_at)
      SELECT id, 'user-' || id, now() - interval '1 day', now() - interval '1 day' FROM generate_series(#{ids.first}, #{ids.last}) AS id
    SQL
  end

  # Expects that alice is the only user and the only claimed username, and that no lease is left.
  def expect_only_alice
    expect(User.pluck(:username)).to eq(["alice"])
    expect(claimed(User, :username)).to eq(["alice"])
    expect(outstanding_leases + lease_rows).to be_empty
  end

  # Reconciles until no lease is outstanding, with a threshold at which leases are stale at once.
  def reconcile
    before = Leasehold.configuration.stale_after_seconds
    stale_after(0.001)
    Support::Waiting.wait_for("nothing outstanding") do
      reconcile_once
      (outstanding_leases + lease_rows).empty?
    end
  ensure
    stale_after(before)
  end

  # Sets `stale_after_seconds`, and `commit_within_seconds`, which must be less. The commit guard in the
  # database keeps its own value.
  def stale_after(seconds)
    Leasehold.configuration.stale_after_seconds = seconds
    Leasehold.configuration.commit_within_seconds = seconds / 2
  end

  # Runs the job once, and ignores a failure: the next run repeats what failed while a server restarted.
  def reconcile_once
    Leasehold::ReconcileJob.perform_now
  rescue Leasehold::Error::Temporary
    nil
  end

  # @return [Array<Hash>] the calls to the server that the block makes
  def calls
    seen = []
    subscriber = lambda do |name, _start, _finish, _id, payload|
      seen << payload.slice(:creates, :destroys, :code).merge(call: name.delete_suffix(".leasehold").to_sym)
    end
    pattern = /\A(begin_update|commit_update|rollback_update)\.leasehold\z/
    ActiveSupport::Notifications.subscribed(subscriber, pattern) { yield }
    seen
  end
end

RSpec.configure do |config|
  config.include RailsSpecs, :rails
  config.before(:example, :rails) { start_server }
  config.after(:example, :rails) { clear_server }
  config.after(:example, :rails) { discard_subclasses }
end
