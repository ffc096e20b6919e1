# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"

require_relative "../../tasks/package"

# Gems as people get them: installed outside of the project, then used by a process that knows nothing else.
RSpec.describe Package do
  around { |example| Dir.mktmpdir("leasehold-gem") { |directory| @directory = directory and example.run } }

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

  def install(built)
    FileUtils.cp(built, @directory)
    run("gem", "install", "--local", "--no-document", File.basename(built))
    script = 'require "leasehold"; puts Leasehold::Native.canonical_form(4, "ALICE"), $LOADED_FEATURES.grep(/leasehold_ruby/)'
    run(RbConfig.ruby, "-e", "gem 'leasehold'; #{script}").split
  end

  it "compiles where it is installed, with nothing but cargo" do
    form, extension = install(described_class.source)
    expect(form).to eq("alice")
    expect(extension).to start_with(@directory)
    kept = Dir[File.join(@directory, "home/gems/**/*")].sum { |path| File.file?(path) ? File.size(path) : 0 }
    expect(kept).to be < 20_000_000
  end

  it "comes precompiled for this platform" do
    built = described_class.native
    form, extension = install(built)
    expect(form).to eq("alice")
    expect(extension).to end_with("/lib/leasehold/#{RUBY_VERSION[/\d+\.\d+/]}/leasehold_ruby.so")
    expect(Gem::Package.new(built).contents.grep(/\Aext/)).to be_empty
  end
end
