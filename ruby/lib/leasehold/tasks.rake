# frozen_string_literal: true

namespace :leasehold do
  desc "Settle what was left unsettled; DRY_RUN=1 only tells"
  task reconcile: :environment do
    Leasehold::Console.new.reconcile
  end

  desc "Compare a model's claims with its rows, and correct them: leasehold:verify[User]; DRY_RUN=1 only tells, " \
       "RESUME=1 goes on where a job has stopped, ALLOW_EMPTY=1 gives up the claims of a table without rows"
  task :verify, [:model] => :environment do |_task, arguments|
    names = arguments[:model] ? [arguments[:model]] : Leasehold::Models.names
    Leasehold::Console.new.verify(names)
  rescue Leasehold::Console::Failed => error
    abort error.message
  end
end
