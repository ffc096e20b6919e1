# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"

require_relative "../../tasks/package"

# Installs gems outside of the project, and uses them in a process that knows only the gem.
RSpec.describe Package do
  # The examples prove that gems install, not that they are fast: full optimisation takes minutes.
  quick_release = {
    "CARGO_PROFILE_RELEASE_LTO" => "off", "CARGO_PROFILE_RELEASE_OPT_LEVEL" => "1", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS" => "16"
  }

  around do |example|
    variables = ENV.to_h
    ENV.update(quick_release)
    Dir.mktmpdir("leasehold-gem") { |directory| @directory = directory and example.run }
  ensure
    ENV.replace(variables)
  end

  def run(*command)
    path = [File.join(@directory, "home"), *Gem.default_path].join(":")
    environment = {
      "GEM_HOME" => File.join(@directory, "home"), "GEM_PATH" => path, "RUBYLIB" => nil, "RUBYOPT" => nil,
      "CARGO_TARGET_DIR" => nil
    }
    output, status = Open3.capture2e(environment, *command, chdir: @directory)
    expect(status).to be_success, output
    output
  end

  def install(gem_path)
    FileUtils.cp(gem_path, @directory)
    run("gem", "install", "--local", "--no-document", File.basename(gem_path))
    script = 'require "leasehold"; puts Leasehold::Native.canonical_form(4, "ALICE"), $LOADED_FEATURES.grep(/leasehold_ruby/)'
    run(RbConfig.ruby, "-e", "gem 'leasehold'; #{script}").split
  end

  it "compiles during installation, with no tool but cargo" do
    form, extension = install(described_class.source)
    expect(form).to eq("alice")
    expect(extension).to start_with(@directory)
    installed_bytes = Dir[File.join(@directory, "home/gems/**/*")].sum { |path| File.file?(path) ? File.size(path) : 0 }
    expect(installed_bytes).to be < 20_000_000
  end

  it "is precompiled for this platform" do
    gem_path = described_class.native
    form, extension = install(gem_path)
    expect(form).to eq("alice")
    expect(extension).to end_with("/lib/leasehold/#{RUBY_VERSION[/\d+\.\d+/]}/leasehold_ruby.so")
    expect(Gem::Package.new(gem_path).contents.grep(/\Aext/)).to be_empty
  end
end
