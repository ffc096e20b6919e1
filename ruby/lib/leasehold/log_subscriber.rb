# frozen_string_literal: true

require "active_support/log_subscriber"
require "json"

module Leasehold
  # Logs the gem's notifications, one JSON object a line: what happened, to which lease, how many, how long. No value of a
  # claim is among it (V09).
  class LogSubscriber < ActiveSupport::LogSubscriber
    # Events by the level at which they are logged.
    LEVELS = {
      begin_update: :info, commit_update: :info, rollback_update: :info, reconcile: :info, verify: :info, finding: :info,
      list_leases: :debug, list_records: :debug, get_record: :debug,
      unsettled: :warn, reconcile_failed: :warn, refused: :warn, unclaimed: :error, lost: :error,
      unverifiable: :error
    }.freeze

    LEVELS.each do |name, level|
      define_method(name) { |event| write(level, name, event) }
    end

    # What a dry run would do has a finding for each claim of a table that is yet to be filled.
    def finding(event)
      planned = event.payload.fetch(:outcome).start_with?("to_")
      write(planned ? :debug : LEVELS.fetch(:finding), :finding, event)
    end

    # Names are not safe where a lease may be given up before its transaction is committed (R04).
    def reconcile(event)
      write(event.payload[:guarded] == false ? :warn : LEVELS.fetch(:reconcile), :reconcile, event)
    end

    # Not Rails' own, where another is configured.
    def logger
      Leasehold.configuration.logger
    end

    private

    def write(level, name, event)
      payload = event.payload.except(:exception, :exception_object)
      # Payloads are plain values: what ActiveSupport would make of others costs ten times as much.
      logger.public_send(level) { JSON.generate({ event: "leasehold.#{name}", duration_ms: event.duration.round(2), **payload }) }
    end
  end
end

Leasehold::LogSubscriber.attach_to(:leasehold)
