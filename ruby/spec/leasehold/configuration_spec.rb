# frozen_string_literal: true

require "leasehold/client"

RSpec.describe Leasehold::Configuration do
  let(:configuration) do
    described_class.new.tap do |valid|
      valid.address = "127.0.0.1:7171"
      valid.cell_id = 1
      valid.tls = { insecure: true }
    end
  end

  it "refuses invalid settings by name" do
    expect(configuration.validate!).to be(configuration)
    {
      address: [nil, "", "host", "http://host:7171", 7171], cell_id: [nil, 0, -1, "1"], tls: [nil, true],
      tries: [0, 1.5], max_concurrent_begins: [0], request_deadline_seconds: [0, -1, "1", nil],
      commit_within_seconds: [600, 601], verification_max_destroy_share: [-0.1, 1.1, "1", nil],
      metadata_form: [:record, "bucket", nil], taken_errors_on: [:record, nil]
    }.each do |name, values|
      values.each do |value|
        wrong = configuration.dup.tap { |copy| copy.public_send("#{name}=", value) }
        expect { wrong.validate! }.to raise_error(Leasehold::Error::Misconfigured, /`#{name}` is/), "#{name} #{value.inspect}"
      end
    end
  end

  it "asks the block for feature flags; without a block all flags are on" do
    expect(configuration.feature_enabled?(:any)).to be(true)
    configuration.feature_enabled { |flag| flag == :one && :yes }
    expect([configuration.feature_enabled?(:one), configuration.feature_enabled?(:other)]).to eq([true, false])
  end

  it "asks the block for the current organization; without a block there is none" do
    expect(configuration.current_organization_id).to be_nil
    configuration.organization_id { 5 }
    expect(configuration.current_organization_id).to eq(5)
    expect { configuration.organization_id }.to raise_error(ArgumentError, /`organization_id` has no block/)
  end

  it "refuses `feature_enabled` without a block, and keeps the block that was set" do
    configuration.feature_enabled { |flag| flag == :one }

    expect { configuration.feature_enabled }.to raise_error(ArgumentError, "`feature_enabled` has no block: pass one, or ask a flag by `feature_enabled?`")
    expect([configuration.feature_enabled?(:one), configuration.feature_enabled?(:other)]).to eq([true, false])
  end

  it "creates a new client after a change of the settings" do
    before = Leasehold.configuration
    Leasehold.instance_variable_set(:@configuration, configuration)
    Leasehold.reset_client
    first = Leasehold.client
    expect(Leasehold.client).to be(first)
    Leasehold.configure { |settings| settings.cell_id = 2 }
    expect(Leasehold.client).not_to be(first)
  ensure
    Leasehold.instance_variable_set(:@configuration, before)
    Leasehold.reset_client
  end
end
