# frozen_string_literal: true

require "grpc/version"
require "leasehold/rails"
require "openssl"

module Leasehold
  # Checks that this application can claim: its settings and certificates, the server, the databases and the
  # models. Changes nothing.
  class Doctor
    # A certificate that ends within this number of days is reported.
    CERTIFICATE_DAYS = 14
    # Tolerated difference between two clocks, in seconds.
    CLOCK_SECONDS = 5

    # The result of one check.
    #
    # - `subject`: the checked object, for example "server"
    # - `error`: the error; nil if the check passed
    # - `text`: the facts if the check passed
    # - `warning`: a problem that stops no save, with its remedy; nil for none
    Result = Struct.new(:subject, :error, :text, :warning)

    # Raised if a check failed. The message has the remedy.
    Fault = Class.new(StandardError)

    def initialize(client: nil)
      @client = client
    end

    # Runs all checks. A check that fails stops no other.
    #
    # @return [Array<Result>]
    def run
      settings = check("settings") { describe_settings }
      # Without valid settings there is no client.
      server = settings.error ? [] : [check("certificates") { check_certificates }, check("server") { check_server }]
      [settings, *server, check("versions") { versions }, *check_each("databases", -> { pools }) { |pool| database(pool) },
       *check_each("models", -> { Models.names }) { |name| model(name) }]
    end

    private

    # Rescues every error, not only {Fault}: if an earlier check has failed, this one may raise any error.
    #
    # @yieldreturn [String, Array(String, String)] the text, or the text and a warning
    def check(subject)
      Result.new(subject, nil, *yield)
    rescue StandardError => error
      Result.new(subject, error)
    end

    # Checks each item of a list. If the list cannot be read, that error is the only result.
    #
    # @yieldreturn [Result]
    def check_each(subject, list, &checking)
      items = nil
      listed = check(subject) { (items = list.call) && nil }
      listed.error ? [listed] : items.map(&checking)
    end

    def settings
      Leasehold.configuration
    end

    def describe_settings
      settings.validate!
      Client::Credentials.check_keys(settings.tls)
      "cell #{settings.cell_id}, server #{settings.address}"
    end

    def check_certificates
      return "none: the connection is neither encrypted nor identified" if settings.tls[:insecure]

      ends = settings.tls.slice(:ca, :certificate).map { |name, path| certificate_end(name, path) }
      "valid until #{ends.min.to_date.iso8601}"
    end

    def certificate_end(name, path)
      ends = OpenSSL::X509::Certificate.new(Client::Credentials.read(name, path)).not_after
      return ends if ends > Time.now + CERTIFICATE_DAYS * 86_400

      raise Fault, "the certificate of `tls.#{name}` ends on #{ends.to_date.iso8601}: replace it"
    rescue Error::Misconfigured, OpenSSL::X509::CertificateError => error
      raise Fault, error.is_a?(Error) ? error.message : "`tls.#{name}` is no certificate (#{error.message}): set it to the path of a PEM file"
    end

    # Checks that the server answers, and compares its clock with this host's. `list_leases` raises if the
    # answer lacks the server's time, because the server is older than this gem.
    def check_server
      client = @client || Leasehold.client
      sent = Time.now
      page = client.list_leases(limit: 1, deadline_seconds: settings.verification_deadline_seconds)
      @server_version = page.server_version
      difference = (page.server_time - sent - (Time.now - sent) / 2).abs
      return "answers, clocks differ by #{difference.round(1)} s" if difference < CLOCK_SECONDS

      raise Fault, "the clocks of the server and of this host differ by #{difference.round} s: synchronise them"
    rescue Error::Invalid => error
      # The cell's id is the only argument of this call that can be wrong.
      raise Error::Misconfigured,
            "#{error.message}: set `cell_id`, which is #{settings.cell_id}, to the id of a cell in the server's configuration (`[[cells]]`)"
    end

    # Returns the versions of all parts, and a warning if the server is older than the gem. A later gem may call
    # what an older server does not have, so servers are upgraded first.
    def versions
      parts = {
        "gem" => VERSION, "server" => @server_version || "unknown", "extension" => Native::VERSION,
        "Rails" => ::Rails.version, "Ruby" => RUBY_VERSION,
        "google-protobuf" => gem_version("google-protobuf"), "grpc" => GRPC::VERSION
      }
      text = parts.map { |name, version| "#{name} #{version}" }.join(", ")
      older = @server_version && Gem::Version.new(@server_version) < Gem::Version.new(VERSION)
      older ? [text, "the server is older than the gem: upgrade the server"] : text
    end

    def gem_version(name)
      Gem.loaded_specs[name]&.version || "unknown"
    end

    def pools
      (settings.lease_databases || Models.names.map { |name| Models.fetch(name) }).map(&:connection_pool).uniq
    end

    def database(pool)
      check("database #{pool.db_config.name}") { check_database(pool) }
    end

    def check_database(pool)
      ActiveRecordCompat.with_connection(pool) do |connection|
        [LeaseTable::NAME, Verifier::Progress::NAME].each { |name| check_table(connection, name) }
        check_guard(LeaseTable.new(connection))
        check_clock(LeaseTable.new(connection))
        ["has its tables and the trigger", check_captures(connection)]
      end
    end

    def check_table(connection, name)
      return if connection.data_source_exists?(name)

      raise Fault, "the table `#{name}` is missing: run `bin/rails generate leasehold:install`, and its migration in this database"
    end

    def check_guard(table)
      return if table.guarded?(settings.stale_after_seconds)

      raise Fault, "the trigger of `#{LeaseTable::NAME}` is missing, disabled, or has more seconds than `stale_after_seconds` " \
                   "(#{settings.stale_after_seconds}), so two cells may own one name: run " \
                   "`bin/rails generate leasehold:update --force`, then `bin/rails db:migrate`; `db/schema.rb` has no triggers, `db/structure.sql` has them"
    end

    def check_clock(table)
      difference = (table.clock_micros / 1_000_000.0 - Time.now.to_f).abs
      raise Fault, "the clocks of the database and of this host differ by #{difference.round} s: synchronise them" if difference > CLOCK_SECONDS
    end

    # Checks the captures of claimed columns, if the database has any that its role may read.
    #
    # @return [String, nil] a warning
    def check_captures(connection)
      readable = "SELECT has_function_privilege(to_regprocedure('leasehold_claims_gaps()'), 'EXECUTE') " \
                 "AND has_table_privilege(to_regclass('leasehold_claims_captures'), 'SELECT')"
      return unless connection.select_value(readable)

      if !settings.strict_claims && connection.select_value("SELECT bool_or(is_strict) FROM leasehold_claims_captures")
        raise Fault, "a capture of claims is strict, so saves of this application are refused: set `strict_claims` to true"
      end

      gaps = connection.select_values("SELECT concat_ws(': ', member, gap) FROM leasehold_claims_gaps()")
      "changes of claimed columns are not captured: #{gaps.join("; ")}" if gaps.any?
    end

    def model(name)
      check("model #{name}") { check_model(Models.fetch(name)) }
    end

    def check_model(model)
      Models.check(model)
      enabled = model.cells_claims_enabled.map { |attribute| "`#{attribute.name}`" }
      enabled.empty? ? "claims nothing: the feature flags of all its attributes are off" : "claims #{enabled.join(', ')}"
    end
  end
end
