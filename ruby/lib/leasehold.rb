# frozen_string_literal: true

require_relative "leasehold/version"
require_relative "leasehold/values"
require_relative "leasehold/errors"
require_relative "leasehold/configuration"

# Keeps unique attributes unique across the databases of many cells.
module Leasehold
  autoload :Client, "leasehold/client"
  autoload :Native, "leasehold/native"
  autoload :Reconciliation, "leasehold/reconciliation"
  autoload :Verification, "leasehold/verification"

  @lock = Mutex.new

  class << self
    # Sets up this process.
    #
    # @yieldparam configuration [Configuration]
    def configure
      yield configuration
      reset_client
    end

    # @return [Configuration] of this process
    def configuration
      @configuration || @lock.synchronize { @configuration ||= Configuration.new }
    end

    # The client of this process. It connects with its first call, and anew after a fork.
    #
    # @raise [Error::Misconfigured]
    # @return [Client]
    def client
      settings = configuration
      @lock.synchronize { @client ||= Client.new(settings) }
    end

    # Closes the client's connection; the next call makes another, with the certificates as they are then.
    def reset_client
      @lock.synchronize { @client.tap { @client = nil } }&.close
    end
  end
end

require_relative "leasehold/railtie" if defined?(Rails::Railtie)
