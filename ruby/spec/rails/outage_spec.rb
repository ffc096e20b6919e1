# frozen_string_literal: true

require "rails_helper"
require "active_record/destroy_association_async_job"

RSpec.describe "destroys while the server is away", :rails do
  let!(:users) { %w[alice bob].map { |name| User.create!(username: name) } }

  before do
    users.first.emails.create!(email: "a@example.com")
    server.stop
  end

  after { Leasehold.configuration.raise_on_unavailable_destroy = true }

  { "destroy" => -> { users.first.destroy },
    "destroy!" => -> { users.first.destroy! },
    "destroy_all" => -> { User.destroy_all },
    "destroy_by" => -> { User.destroy_by(username: "bob") },
    "destroy of a class" => -> { User.destroy(users.last.id) },
    "destroy_all of an association" => -> { users.first.emails.destroy_all },
    "find_each(&:destroy)" => -> { User.find_each(&:destroy) },
    "the job of `dependent: :destroy_async`" => lambda {
      arguments = { owner_model_name: "User", owner_id: 0, association_class: "User", association_ids: users.map(&:id) }
      ActiveRecord::DestroyAssociationAsyncJob.new.perform(**arguments, association_primary_key_column: :id)
    } }.each do |name, destroy|
    it "raise, so that nobody takes the rows for destroyed: #{name}" do
      expect { instance_exec(&destroy) }.to raise_error(Leasehold::ClaimsUnavailable) { |error|
        expect(error).to have_attributes(temporary?: true, retry_after: 1)
      }
      expect([User.count, Email.count]).to eq([2, 1])
    end
  end

  it "return false if the setting says so" do
    Leasehold.configuration.raise_on_unavailable_destroy = false

    expect(users.first.destroy).to be(false)
    expect(users.first.errors.details).to eq(base: [{ error: :claims_unavailable }])
    expect { users.first.destroy! }.to raise_error(ActiveRecord::RecordNotDestroyed)
  end

  it "leave `save` and `update` as they are" do
    expect(User.find(users.first.id).update(username: "carol")).to be(false)
    expect { User.create!(username: "dan") }.to raise_error(Leasehold::ClaimsUnavailable)
  end
end

RSpec.describe "errors of claims" do
  it "can be named before ActiveRecord loads its models, and have statuses" do
    script = <<~RUBY
      require "rails"
      require "action_controller/railtie"
      require "active_record/railtie"
      require "leasehold"
      raise "loaded" if $LOADED_FEATURES.any? { |path| path.end_with?("cells/claimable.rb") }
      responses = Rails::Railtie::Configuration.new.action_dispatch.rescue_responses
      print Leasehold::ClaimsUnavailable.superclass, " ", responses.values_at("Leasehold::ClaimsRejected", "Leasehold::ClaimsUnavailable")
    RUBY
    output, status = Open3.capture2e(RbConfig.ruby, "-I", File.expand_path("../../lib", __dir__), "-e", script)

    expect(status).to be_success, output
    expect(output).to match(/\ALeasehold::ClaimsRejected \[:unprocessable_\w+, :service_unavailable\]\z/)
  end
end
