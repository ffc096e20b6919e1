# frozen_string_literal: true

require "rbs"

require "rails_helper"
require "leasehold/active_job"
require "leasehold/rspec"
require "rails/generators"
require "generators/leasehold/guard/guard_generator"
require "generators/leasehold/install/install_generator"
require "generators/leasehold/outbox/outbox_generator"
require "leasehold/relay"
require "generators/leasehold/update/update_generator"

# Compares the signatures of the helpers of tests, of the generators and of the jobs with the code.
RSpec.describe "signatures of the parts for Rails" do
  # @return [Array<Module>] the namespace, and all modules and classes in it
  def modules(namespace)
    inner = namespace.constants(false).map { |name| namespace.const_get(name, false) }
    inner = inner.select { |constant| constant.is_a?(Module) && constant.name.start_with?("#{namespace.name}::") }
    [namespace, *inner.flat_map { |constant| modules(constant) }]
  end

  it "name exactly the public methods of `leasehold/test_help`, `leasehold/rspec`, the generators and the jobs" do
    builder = Support::Signatures.builder
    described = [Leasehold::TestHelp, Leasehold::RSpec, Leasehold::Generators].flat_map { |namespace| modules(namespace) }
    described -= [Leasehold::TestHelp::Client::Connection]
    described.reject! { |type| type < Struct }
    described += [Leasehold::ClaimsCapture, Leasehold::Outbox, Leasehold::Relay]
    described += [Leasehold::JobGrouping, Leasehold::JobRequests, Leasehold::JobWorker, ActiveJob::QueueAdapters::LeaseholdAdapter]

    expect(described.size).to be > 12
    described.each do |type|
      expect(Support::Signatures.instance_methods_of(builder, type)).to match_array(type.public_instance_methods(false)), type.name
      expect(Support::Signatures.singleton_methods_of(builder, type)).to match_array(type.singleton_methods(false)), type.name
    end
  end
end
