# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "leasehold"
  spec.version = File.read(File.join(__dir__, "lib/leasehold/version.rb"))[/VERSION = "(.+)"/, 1]
  spec.summary = "Keeps unique attributes unique across many databases"
  spec.description = "Claims in ActiveRecord, checked, settled, reconciled and verified against a Leasehold server."
  spec.authors = ["The Leasehold authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.metadata = { "rubygems_mfa_required" => "true" }

  spec.files = Dir.chdir(__dir__) do
    Dir["{config,lib,sig}/**/*", "ext/**/*.{rb,rs,sql,toml,lock}", "LICENSE", "README.md"].select do |path|
      File.file?(path) && !path.match?(%r{\.so\z|/target/})
    end
  end
  spec.extensions = ["ext/leasehold/extconf.rb"]

  # The bounds are the versions that the specs were run with. docs/src/guides/rails.md lists them.
  spec.add_dependency "activejob", ">= 6.1", "< 8.2"
  spec.add_dependency "activerecord", ">= 6.1", "< 8.2"
  spec.add_dependency "google-protobuf", ">= 3.21", "< 5"
  spec.add_dependency "googleapis-common-protos-types", "~> 1.4"
  spec.add_dependency "grpc", "~> 1.51"
  spec.add_dependency "railties", ">= 6.1", "< 8.2"
end
