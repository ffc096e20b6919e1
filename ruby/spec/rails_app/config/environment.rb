# frozen_string_literal: true

# A small application: users, emails and routes in one database, keys in another. Environment
# variables select the cell, the databases and the server.
ENV["RAILS_ENV"] ||= "test"

$LOAD_PATH.unshift(File.expand_path("../../../lib", __dir__))

require "rails"
require "active_record/railtie"
require "active_job/railtie" unless ENV["RAILS_APP_WITHOUT_ACTIVE_JOB"]
require "leasehold"
require "leasehold/railtie"

module RailsApp
  class Application < Rails::Application
    config.root = File.expand_path("..", __dir__)
    config.load_defaults Rails::VERSION::STRING.to_f
    config.eager_load = false
    config.logger = Logger.new(ENV.fetch("RAILS_APP_LOG", File::NULL))
    config.log_level = :info
    # Deprecated calls raise, because they fail in a later version of Rails. Rails 6.1 only prints them: it
    # would raise for a deprecated `throw` of the specs, not of the gem.
    config.active_support.deprecation = Rails::VERSION::STRING.to_f < 7 ? :stderr : :raise
    config.i18n.available_locales = %i[en de]
    config.active_job.queue_adapter = ENV.fetch("RAILS_APP_QUEUE_ADAPTER", "test").to_sym if defined?(ActiveJob::Railtie)
    config.secret_key_base = "a secret of tests"
  end
end

RailsApp::Application.initialize!
