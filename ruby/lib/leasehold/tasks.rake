# frozen_string_literal: true

namespace :leasehold do
  desc "Settle what was left unsettled; DRY_RUN=1 only tells"
  task reconcile: :environment do
    Leasehold::Console.run(&:reconcile)
  end

  desc "Compare the claims of models with their rows, and correct them: leasehold:verify[User] or leasehold:verify[User,Email], " \
       "without a name all; DRY_RUN=1 only tells, " \
       "RESUME=1 goes on where a job has stopped, ALLOW_EMPTY=1 gives up the claims of a table without rows, " \
       "SAMPLES=100 shows so many findings of each outcome"
  task :verify, [:model] => :environment do |_task, arguments|
    named = [arguments[:model], *arguments.extras].compact
    Leasehold::Console.run { |console| console.verify(named.presence || Leasehold::Models.names) }
  end
end
