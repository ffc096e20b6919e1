# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"
require_relative "../../tasks/protos"

RSpec.describe Protos do
  it "generates exactly the committed code from the contract" do
    expect(described_class.generated).to eq(described_class.committed), "run `rake protos`"
  end

  # The compiler's own code adds descriptors and declares a service without looking for those of other gems.
  it "loads after another gem of the same contract, such as GitLab's client" do
    Dir.mktmpdir do |directory|
      described_class.committed.each do |path, code|
        target = File.join(directory, "other", path)
        FileUtils.mkdir_p(File.dirname(target))
        File.write(target, code.gsub("require 'leasehold/proto/", "require 'other/").gsub(/^unless .*$/, "begin"))
      end
      service = "other/gitlab/cells/topology_service/claims/v1/claim_service_services_pb"
      script = %(require "#{service}"; require "leasehold/client"; print Leasehold::Client::Messages::V1::Bucket::Type.resolve(:USERNAMES))
      output, = Open3.capture2e(RbConfig.ruby, "-I", directory, "-I", File.expand_path("../../lib", __dir__), "-e", script)

      expect(output).to eq("4")
    end
  end

  # Files of other gems call this method with old versions of google-protobuf, so these files are loaded
  # before the method is removed.
  it "loads without `DescriptorPool#build`, which google-protobuf removed in 4.26" do
    script = <<~RUBY
      require "grpc"
      %w[google/protobuf/descriptor_pb google/protobuf/well_known_types google/rpc/error_details_pb google/rpc/status_pb].each { |path| require path }
      pool = Google::Protobuf::DescriptorPool
      pool.undef_method(:build) if pool.method_defined?(:build)
      require "leasehold/client"
      print Leasehold::Client::Messages::V1::Bucket::Type.resolve(:USERNAMES)
    RUBY
    output, status = Open3.capture2e(RbConfig.ruby, "-W0", "-I", File.expand_path("../../lib", __dir__), "-e", script)

    expect([output, status.success?]).to eq(["4", true])
  end
end
