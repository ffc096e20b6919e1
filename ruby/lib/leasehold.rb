# frozen_string_literal: true

require_relative "leasehold/version"
require_relative "leasehold/values"
require_relative "leasehold/errors"
require_relative "leasehold/configuration"

# Keeps attributes of models unique across the databases of all cells.
module Leasehold
  autoload :Client, "leasehold/client"
  autoload :Native, "leasehold/native"
  autoload :Reconciliation, "leasehold/reconciliation"
  autoload :Verification, "leasehold/verification"

  @lock = Mutex.new

  class << self
    # Configures this process. Closes the client, so that the next call uses the new settings.
    #
    # @yieldparam configuration [Configuration]
    def configure
      yield configuration
      reset_client
    end

    # @return [Configuration] the settings of this process
    def configuration
      @configuration || @lock.synchronize { @configuration ||= Configuration.new }
    end

    # Returns the client of this process. It connects at its first call, and again after a fork.
    #
    # @raise [Error::Misconfigured] if a setting is invalid
    # @return [Client]
    def client
      settings = configuration
      @lock.synchronize { @client ||= Client.new(settings) }
    end

    # Loads all code of the gem. Rails calls this method at boot if `config.eager_load` is true.
    #
    # @return [void]
    def eager_load!
      require_relative "leasehold/rails"
      constants.each { |name| const_get(name) }
      Cells::BulkClaimsWorker
      nil
    end

    # Sets the client of this process, for tests. {reset_client} removes it.
    attr_writer :client

    # Closes the client's connection. The next call reads the certificates again and connects anew.
    def reset_client
      @lock.synchronize { @client.tap { @client = nil } }&.close
    end
  end
end

require_relative "leasehold/railtie" if defined?(Rails::Railtie)
