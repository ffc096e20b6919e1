# frozen_string_literal: true

require_relative "leasehold/version"
require_relative "leasehold/values"
require_relative "leasehold/errors"
require_relative "leasehold/configuration"
require_relative "leasehold/process_end"

# Keeps attributes of models unique across the databases of all cells.
module Leasehold
  autoload :Batch, "leasehold/queues"
  autoload :Client, "leasehold/client"
  autoload :Guard, "leasehold/guard"
  autoload :GuardFencePassed, "leasehold/guard"
  autoload :GuardRefused, "leasehold/guard"
  autoload :GuardSessionLost, "leasehold/guard"
  autoload :HeldLock, "leasehold/locks"
  autoload :Locks, "leasehold/locks"
  autoload :Native, "leasehold/native"
  autoload :Orphan, "leasehold/locks"
  autoload :Outbox, "leasehold/outbox"
  autoload :Queues, "leasehold/queues"
  autoload :Reconciliation, "leasehold/reconciliation"
  autoload :RequestQueue, "leasehold/queues"
  autoload :Verification, "leasehold/verification"
  autoload :Worker, "leasehold/queues"

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

    # Returns the locks of this process, which share one session. It is opened by the first acquire, and again
    # after a fork.
    #
    # @raise [Error::Misconfigured] if a setting is invalid
    # @return [Locks]
    def locks
      settings = configuration
      @lock.synchronize { @locks ||= Locks.new(settings) }
    end

    # Runs the block while this process holds a lock. See {Locks#with}.
    #
    # @yieldparam held [HeldLock]
    # @return [Object] the block's result
    def lock(namespace, key, **options, &block)
      locks.with(namespace, key, **options, &block)
    end

    # Runs the block while this process holds several locks. See {Locks#with_all}.
    #
    # @yieldparam held [Array<HeldLock>]
    # @return [Object] the block's result
    def lock_all(*names, **options, &block)
      locks.with_all(*names, **options, &block)
    end

    # Waits for a lock whose holder has died, and runs the block to clean up. See {Locks#reap}.
    #
    # @yieldparam orphan [Orphan]
    # @return [Object, nil] the block's result; nil if no lock came in time
    def reap(namespace, **options, &block)
      locks.reap(namespace, **options, &block)
    end

    # Cleans up after one dead holder after another. See {Locks#reap_each}.
    #
    # @yieldparam orphan [Orphan]
    # @return [nil]
    def reap_each(namespace, **options, &block)
      locks.reap_each(namespace, **options, &block)
    end

    # Returns the queues, for this process to submit requests to and to work for.
    #
    # @raise [Error::Misconfigured] if a setting is invalid
    # @return [Queues]
    def queues
      settings = configuration
      @lock.synchronize { @queues ||= Queues.new(settings) }
    end

    # Returns a queue. See {Queues#queue}.
    #
    # @return [RequestQueue]
    def queue(name)
      queues.queue(name)
    end

    # Relays the outboxes of the application's databases until a signal comes. See {Relay.run}.
    #
    # @return [nil]
    def relay(...)
      Relay.run(...)
    end

    # Works for queues until a signal comes. See {Queues#work}.
    #
    # @yieldparam batch [Batch]
    # @return [nil]
    def work(*names, **options, &block)
      queues.work(*names, **options, &block)
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

    # Closes the connections, and the session of this process's locks. The next call reads the certificates
    # again and connects anew.
    def reset_client
      opened = @lock.synchronize { [@client, @locks, @queues].tap { @client = @locks = @queues = nil } }
      opened.compact.each(&:close)
    end
  end
end

require_relative "leasehold/railtie" if defined?(Rails::Railtie)
