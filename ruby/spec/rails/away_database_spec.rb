# frozen_string_literal: true

require "rails_helper"

# Rails' executor enables the query caches of all databases.
RSpec.describe "a job in the executor, while the database of other models is away", :rails do
  before do
    User.insert_all(%w[alice bob].map { |name| { username: name, created_at: 1.day.ago, updated_at: 1.day.ago } })
    KeysRecord.establish_connection("postgresql://127.0.0.1:1/absent")
  end

  after { KeysRecord.establish_connection(Support::PostgresCluster.instance.url(Support::Cell[1].keys_database)) }

  it "verifies over the connection of the model's own database" do
    Rails.application.executor.wrap do
      expect(Leasehold::Verifier.new(User).run).to include(created: 4)
      expect(User.connection_pool.query_cache_enabled).to be(true)
    end
    expect { Key.count }.to raise_error(ActiveRecord::ConnectionNotEstablished)
  end

  it "claims in bulk" do
    Rails.application.executor.wrap do
      Leasehold::BulkClaimsJob.perform_now("User", "username", { "create_record_ids" => User.ids })
    end
    expect(claimed(User, :username)).to eq(%w[alice bob])
  end
end
