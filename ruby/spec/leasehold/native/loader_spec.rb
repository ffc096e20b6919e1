# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

# Loads a copy of the gem's code with other extensions.
RSpec.describe "the extension's loader" do
  around do |example|
    Dir.mktmpdir("leasehold-loader") do |directory|
      @directory = directory
      FileUtils.cp_r(Dir[File.expand_path("../../../lib/*", __dir__)], directory)
      Dir[File.join(directory, "leasehold/**/*.so")].each { |path| FileUtils.rm(path) }
      example.run
    end
  end

  def error(*extensions)
    extensions.each do |path|
      FileUtils.mkdir_p(File.dirname(File.join(@directory, path)))
      File.write(File.join(@directory, path), "no extension")
    end
    script = 'begin; require "leasehold/native"; rescue LoadError => error; print error.message; end'
    Open3.capture2e(RbConfig.ruby, "-I", @directory, "-e", script).first
  end

  it "shows why an extension cannot be loaded" do
    series = RUBY_VERSION[/\d+\.\d+/]

    expect(error("leasehold/#{series}/leasehold_ruby.so")).to match(%r{leasehold/#{series}/leasehold_ruby\.so: (file too short|invalid ELF)})
  end

  it "names the versions of Ruby that a precompiled gem has, and the gem to install instead" do
    expect(error("leasehold/2.9/leasehold_ruby.so", "leasehold/4.9/leasehold_ruby.so"))
      .to match(/has extensions for Ruby 2\.9, 4\.9, not for \d\.\d: install the source gem, with `gem install leasehold --platform ruby`/)
  end

  it "says how to build a missing extension" do
    expect(error).to eq("the extension `leasehold/leasehold_ruby` is missing: build it with `rake compile` in the gem's directory")
  end
end
