# frozen_string_literal: true

require "open3"
require "rbconfig"
require_relative "../../tasks/package"

# Installs gems outside of the project, and uses them in a process that knows only the gem.
RSpec.describe Package do
  # The examples prove that gems install, not that they are fast: optimisation takes minutes.
  quick_release = {
    "CARGO_PROFILE_RELEASE_LTO" => "off", "CARGO_PROFILE_RELEASE_OPT_LEVEL" => "0", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS" => "16"
  }

  around do |example|
    variables = ENV.to_h
    ENV.update(quick_release)
    @directory = File.join(target, "gem")
    FileUtils.rm_rf(File.join(@directory, "home"))
    FileUtils.mkdir_p(@directory)
    example.run
  ensure
    ENV.replace(variables)
  end

  # @return [String] the directory into which cargo builds the project. The gem's build is kept there for the
  #   next run, because it consists mostly of dependencies.
  def target
    File.expand_path(ENV.fetch("CARGO_TARGET_DIR", "../target"), Package::RUBY)
  end

  def run(*command)
    path = [File.join(@directory, "home"), *Gem.default_path].join(":")
    environment = {
      "GEM_HOME" => File.join(@directory, "home"), "GEM_PATH" => path, "RUBYLIB" => nil, "RUBYOPT" => nil,
      "CARGO_TARGET_DIR" => File.join(@directory, "target")
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

  it "is precompiled for this platform and for several versions of Ruby" do
    pairs = [Extension::RUBY_SERIES, "3.9"].map { |series| "#{series}=#{Extension::TARGET}" }
    gem_path = described_class.native(described_class.libraries(pairs))
    form, extension = install(gem_path)
    expect(form).to eq("alice")
    expect(extension).to end_with("/lib/leasehold/#{Extension::RUBY_SERIES}/leasehold_ruby.so")
    package = Gem::Package.new(gem_path)
    expect(package.contents.grep(/\Aext/)).to be_empty
    wanted = package.spec.required_ruby_version
    versions = [RUBY_VERSION, "3.9.0", "3.0.9", "3.10.0"].map { |version| Gem::Version.new(version) }
    expect(versions.map { |version| wanted.satisfied_by?(version) }).to eq([true, true, false, false])
  end

  it "refuses a library without a version, and one that is missing" do
    expect { described_class.libraries([Extension::TARGET]) }.to raise_error(ArgumentError, /write `3.1=PATH`/)
    expect { described_class.libraries(["3.1=/absent"]) }.to raise_error(ArgumentError, /`\/absent` is missing/)
  end

  {
    "linux-gnu" => ["libleasehold_ruby.so", nil],
    "linux-musl" => ["libleasehold_ruby.so", "-C target-feature=-crt-static"],
    "darwin23" => ["libleasehold_ruby.dylib", "-C link-arg=-Wl,-undefined,dynamic_lookup"]
  }.each do |host, (library, flags)|
    it "has a Makefile for #{host}" do
      script = File.join(Package::RUBY, "ext/leasehold/extconf.rb")
      set_host = "require 'rbconfig'; RbConfig::CONFIG['host_os'] = '#{host}'; load '#{script}'"
      run(RbConfig.ruby, "-e", set_host)
      makefile = File.read(File.join(@directory, "Makefile"))
      expect(makefile).to include("/release/#{library}\"")
      expect(makefile[/RUSTFLAGS="\$\$RUSTFLAGS (.*)"/, 1]).to eq(flags)
    end
  end
end
