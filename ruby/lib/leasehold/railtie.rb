# frozen_string_literal: true

require "rails/railtie"

require_relative "autoloads"

module Leasehold
  # Makes the models of an application claimable, and adds translations and rake tasks.
  class Railtie < ::Rails::Railtie
    # Statuses of requests that end with an exception, by its class's name: subclasses are not looked up
    # (actionpack 6.1.7.10, action_dispatch/middleware/exception_wrapper.rb:117). ActiveRecord's own are set
    # the same way (activerecord 6.1.7.10, railtie.rb:22).
    if config.respond_to?(:action_dispatch)
      config.action_dispatch.rescue_responses.merge!(
        "Leasehold::ClaimsRejected" => config.action_dispatch.rescue_responses.fetch("ActiveRecord::RecordInvalid", :unprocessable_entity),
        "Leasehold::ClaimsUnavailable" => :service_unavailable
      )
    end

    initializer "leasehold.translations" do
      I18n.load_path.unshift(*Dir[File.expand_path("../../config/locales/*.yml", __dir__)])
    end

    initializer "leasehold.logger", before: :load_config_initializers do
      Leasehold.configuration.logger = ::Rails.logger
    end

    initializer "leasehold.active_record" do
      require "leasehold/log_subscriber"
      ActiveSupport.on_load(:active_record) { require "leasehold/rails" }
    end

    rake_tasks { load File.expand_path("tasks.rake", __dir__) }
  end
end
