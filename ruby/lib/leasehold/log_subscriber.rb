# frozen_string_literal: true

require "active_support/log_subscriber"
require "json"

module Leasehold
  # Logs the gem's notifications, one JSON object a line. Payloads contain no claimed value (V09).
  class LogSubscriber < ActiveSupport::LogSubscriber
    # Log levels by event.
    LEVELS = {
      begin_update: :info, commit_update: :info, rollback_update: :info, reconcile: :info, verify: :info, finding: :info,
      list_leases: :debug, list_records: :debug, get_record: :debug,
      unsettled: :warn, reconcile_failed: :warn, refused: :warn, lost: :error, unverifiable: :error,
      verification_disabled: :info,
      unverified_rows: :warn, relay_failed: :warn, request_refused: :error, settle_refused: :warn,
      open_session: :info, close_session: :info, session_jeopardy: :warn, session_lost: :error,
      try_acquire_lock: :debug, acquire_lock: :debug, acquire_locks: :debug, leave_lock: :debug, release_lock: :debug,
      force_lock: :info, reap_lock: :debug, resolve_orphan: :info,
      submit: :debug, take: :debug, settle: :debug, note_progress: :debug, get_request: :debug, get_queue: :debug,
      list_requests: :debug, list_lanes: :debug, withdraw: :info, resubmit: :info, pause: :info, set_limit: :info
    }.freeze

    LEVELS.each do |name, level|
      define_method(name) { |event| write(level, name, event) }
    end

    # Planned corrections of a dry run are logged at debug level: a table that was never claimed has
    # one finding per claim.
    def finding(event)
      planned = event.payload.fetch(:outcome).start_with?("to_")
      write(planned ? :debug : LEVELS.fetch(:finding), :finding, event)
    end

    # A reconciliation of a database without the commit guard is logged as a warning: two cells may get the
    # same name if a lease is rolled back before its transaction is committed (R04).
    def reconcile(event)
      write(event.payload[:guarded] == false ? :warn : LEVELS.fetch(:reconcile), :reconcile, event)
    end

    # Returns the configured logger. The superclass would use Rails' own.
    def logger
      Leasehold.configuration.logger
    end

    private

    def write(level, name, event)
      payload = event.payload.except(:exception, :exception_object)
      # `JSON.generate` instead of ActiveSupport's encoder, which converts every value with
      # `as_json` first (activesupport 6.1.7.10, json/encoding.rb:35). Payloads are plain values
      # already.
      logger.public_send(level) { JSON.generate({ event: "leasehold.#{name}", duration_ms: event.duration.round(2), **payload }) }
    end
  end
end

Leasehold::LogSubscriber.attach_to(:leasehold)
