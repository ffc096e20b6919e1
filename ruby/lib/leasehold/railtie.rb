# frozen_string_literal: true

require "rails/railtie"

require_relative "autoloads"

module Leasehold
  # Makes the models of an application claimable, and adds translations and rake tasks.
  class Railtie < ::Rails::Railtie
    # The gem's constants outside of {Leasehold}, each by the file in which an application would define the
    # same constant.
    CONSTANTS = {
      "cells.rb" => "Cells", "cells/claimable.rb" => "Cells::Claimable", "cells/bulk_claims_worker.rb" => "Cells::BulkClaimsWorker",
      "cells/transaction_record.rb" => "Cells::TransactionRecord"
    }.freeze
    private_constant :CONSTANTS

    # HTTP statuses of requests that end with an exception, by the name of its class. Rails looks up no
    # superclass (actionpack 6.1.7.10, action_dispatch/middleware/exception_wrapper.rb:117), so every class is
    # listed. ActiveRecord sets those of its own exceptions the same way (activerecord 6.1.7.10, railtie.rb:22).
    if config.respond_to?(:action_dispatch)
      invalid = config.action_dispatch.rescue_responses.fetch("ActiveRecord::RecordInvalid", :unprocessable_entity)
      config.action_dispatch.rescue_responses.merge!(
        "Leasehold::ClaimsRejected" => invalid, "Leasehold::ClaimsTaken" => invalid,
        "Leasehold::ClaimsUnavailable" => :service_unavailable
      )
    end

    # An application may write `config.leasehold.address = …` in `config/application.rb` or in an environment's
    # file. `config.leasehold` is the object that `Leasehold.configure` yields, so a misspelt setting raises.
    config.leasehold = Leasehold.configuration
    # With `config.eager_load`, all code of the gem is loaded at boot and before a server forks, not in the
    # first save.
    config.eager_load_namespaces << Leasehold

    # Adds translations only for locales that the application has. With all of the gem's locales,
    # `I18n.available_locales` would grow, and with it the list of locales that the application offers.
    initializer "leasehold.translations" do |app|
      i18n = app.config.i18n
      own = Dir[app.root.join("config/locales/**/*.{yml,rb}")].map { |path| File.basename(path, ".*").split(".").last }
      locales = ["en", i18n.default_locale, *i18n.available_locales, *own].compact.map(&:to_s).uniq
      files = locales.map { |locale| File.expand_path("../../config/locales/#{locale}.yml", __dir__) }
      I18n.load_path.unshift(*files.select { |file| File.exist?(file) })
    end

    # Zeitwerk ignores the file of a constant that is defined already (zeitwerk 2.6.1,
    # zeitwerk/loader.rb:411), so the application's constant would never be loaded. A directory `cells/` is
    # allowed: its files only add to the module.
    initializer "leasehold.namespace", after: :set_autoload_paths do
      paths = ActiveSupport::Dependencies.autoload_paths + ActiveSupport::Dependencies.autoload_once_paths
      CONSTANTS.each do |file, name|
        path = paths.map { |directory| File.join(directory, file) }.find { |candidate| File.exist?(candidate) } or next

        remedy = name == "Cells" ? "move its contents into files below `cells/`" : "remove or rename it"
        raise Error::Misconfigured, "`#{path}` would never be loaded, because the gem defines `#{name}`: #{remedy}"
      end
    end

    initializer "leasehold.tls", before: :load_config_initializers do
      # Development and test use no TLS: their server is usually on this machine.
      Leasehold.configuration.tls ||= { insecure: true } if ::Rails.env.development? || ::Rails.env.test?
    end

    initializer "leasehold.logger", before: :load_config_initializers do
      Leasehold.configuration.logger = ::Rails.logger
    end

    initializer "leasehold.active_record" do
      require "leasehold/log_subscriber"
      ActiveSupport.on_load(:active_record) { require "leasehold/rails" }
    end

    # Before the initializers of ActiveJob, which look up the configured adapter.
    ActiveSupport.on_load(:active_job) { require "leasehold/active_job" }

    rake_tasks { load File.expand_path("tasks.rake", __dir__) }
  end
end
