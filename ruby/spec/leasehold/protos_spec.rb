# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"
require_relative "../../tasks/protos"

RSpec.describe Protos do
  it "generates exactly the committed code from the contract" do
    expect(described_class.generated).to eq(described_class.committed), "run `rake protos`"
  end

  # GitLab's client has code that protoc itself generates. That code adds messages to google-protobuf's pool and
  # declares the service.
  describe "beside another gem of the same contract, such as GitLab's client" do
    around do |example|
      Dir.mktmpdir do |directory|
        @directory = directory
        described_class.compile("--ruby_out=#{directory}", "--grpc_out=#{directory}")
        example.run
      end
    end

    # @return [String] the output of a process that loads both libraries and uses a message of each
    def load_both(*libraries)
      script = libraries.map { |library| "require #{library.inspect}\n" }.join + <<~RUBY
        theirs = Gitlab::Cells::TopologyService::Claims::V1::CommitUpdateRequest.new(cell_id: 7)
        ours = Leasehold::Client::Messages.new(7).commit_update("")
        print theirs.class == ours.class, Gitlab::Cells::TopologyService::Claims::V1::ClaimService::Stub.new("127.0.0.1:1", :this_channel_is_insecure).class
        print ours.class.decode(theirs.class.encode(theirs)).cell_id
      RUBY
      output, = Open3.capture2e(RbConfig.ruby, "-W0", "-I", @directory, "-I", File.expand_path("../../lib", __dir__), "-e", script)
      output
    end

    orders = ["gitlab/cells/topology_service/claims/v1/claim_service_services_pb", "leasehold/client"].permutation
    orders.each do |first, second|
      it "loads #{first.start_with?("leasehold") ? "before" : "after"} it, with messages of its own" do
        expect(load_both(first, second)).to eq("falseGitlab::Cells::TopologyService::Claims::V1::ClaimService::Stub7")
      end
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
