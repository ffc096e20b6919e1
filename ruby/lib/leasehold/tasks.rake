# frozen_string_literal: true

namespace :leasehold do
  desc "Settle leases that were left unsettled; DRY_RUN=1 only shows them"
  task reconcile: :environment do
    Leasehold::Console.run(&:reconcile)
  end

  desc "Compare claims with rows and correct them: leasehold:verify[User] or leasehold:verify[User,Email], " \
       "all models without a name; DRY_RUN=1 only shows differences, " \
       "RESUME=1 continues where a job stopped, ALLOW_EMPTY=1 destroys the claims of a table without rows, " \
       "MAX_DESTROY_SHARE=0.25 destroys up to a quarter of a table's claims, " \
       "SAMPLES=100 shows up to 100 findings of each outcome"
  task :verify, [:model] => :environment do |_task, arguments|
    names = [arguments[:model], *arguments.extras].compact
    Leasehold::Console.run { |console| console.verify(names.presence || Leasehold::Models.without_covered(Leasehold::Models.names)) }
  end

  desc "Check settings, certificates, the server, the databases and the models; change nothing"
  task doctor: :environment do
    Leasehold::Console.run(&:doctor)
  end

  desc "Count the claims of an attribute whose flag is off: leasehold:release[User,username]; DRY_RUN=0 gives them up"
  task :release, %i[model attribute] => :environment do |_task, arguments|
    dry_run = ENV["DRY_RUN"].to_s.empty? || Leasehold::Console.set?("DRY_RUN")
    Leasehold::Console.run(dry_run: dry_run) { |console| console.release(arguments[:model], arguments[:attribute]) }
  end

  desc "Perform the jobs of the adapter `:leasehold` until TERM or INT: those of QUEUES=default,mailers, " \
       "CONCURRENCY=5 at a time of each queue, SHUTDOWN_TIMEOUT=25 seconds to end them, RELAY=1 to relay the outbox too"
  task work: :environment do
    # Tasks of rake load no code ahead, whatever the application is configured to do.
    Rails.application.eager_load! if Rails.configuration.eager_load
    Leasehold::Console.run(&:work)
  end

  desc "Relay the outboxes of the application's databases to the server until TERM or INT"
  task relay: :environment do
    # Tasks of rake load no code ahead, whatever the application is configured to do.
    Rails.application.eager_load! if Rails.configuration.eager_load
    Leasehold::Console.run(&:relay)
  end
end
