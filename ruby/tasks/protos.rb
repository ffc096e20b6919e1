# frozen_string_literal: true

require "fileutils"
require "google/protobuf"
require "google/protobuf/descriptor_pb"
require "tmpdir"

require_relative "message_code"

# Generates the Ruby code of the wire contract into lib/leasehold/proto.
module Protos
  RUBY = File.expand_path("..", __dir__)
  SOURCE = File.expand_path("../proto/proto", RUBY)
  TARGET = File.join(RUBY, "lib/leasehold/proto")

  # The contract's files that the client uses. Google's files that they import are generated too, because their
  # messages must be in the same pool.
  FILES = %w[
    gitlab/cells/topology_service/access_control.proto
    gitlab/cells/topology_service/cell_info.proto
    gitlab/cells/topology_service/claims/v1/claim_service.proto
    gitlab/cells/topology_service/claims/v1/record.proto
    gitlab/cells/topology_service/types/v1/claim.proto
    gitlab/cells/topology_service/types/v1/uuid.proto
    leasehold/locks/v1/lock_service.proto
    leasehold/queues/v1/queue_service.proto
    leasehold/sessions/v1/session_service.proto
    leasehold/v1/rejection.proto
  ].freeze

  module_function

  # Generates the code into `directory`.
  def generate(directory = TARGET)
    descriptors = File.join(directory, "descriptors")
    compile("--descriptor_set_out=#{descriptors}", "--include_imports", "--grpc_out=#{directory}")
    set = Google::Protobuf::FileDescriptorSet.decode(File.binread(descriptors))
    FileUtils.rm(descriptors)
    set.file.each { |file| write(directory, file) }
    Dir.glob("**/*_services_pb.rb", base: directory).each { |path| localise(File.join(directory, path)) }
  end

  def compile(*outputs)
    system("grpc_tools_ruby_protoc", "-I", SOURCE, *outputs, *FILES, exception: true)
  end

  def write(directory, file)
    path = File.join(directory, file.name.sub(/\.proto\z/, "_pb.rb"))
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, MessageCode.new(file).to_s)
  end

  # @return [Hash{String => String}] freshly generated code by path
  def generated
    Dir.mktmpdir do |directory|
      generate(directory)
      read(directory)
    end
  end

  # @return [Hash{String => String}] committed code by path
  def committed
    read(TARGET)
  end

  def read(directory)
    Dir.glob("**/*.rb", base: directory).sort.to_h { |path| [path, File.read(File.join(directory, path))] }
  end

  # Moves a service into this gem's directory and module. gRPC refuses a call that another gem has declared in the
  # same class (grpc 1.51.1, src/ruby/lib/grpc/generic/service.rb:93).
  def localise(path)
    text = File.read(path).gsub(%r{^require '(gitlab|leasehold)/}, %q(require 'leasehold/proto/\1/))
    head, modules = text.gsub(/::(?=(?:Gitlab|Leasehold)::)/, "::Leasehold::Contract::").split(/^(?=module )/, 2)
    File.write(path, "#{head}module Leasehold\n  module Contract\n#{modules.gsub(/^(?=.)/, '    ')}  end\nend\n")
  end
end
