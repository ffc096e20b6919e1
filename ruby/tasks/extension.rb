# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "rbconfig"

# Builds the extension with cargo, and installs it into `lib`.
module Extension
  RUBY = File.expand_path("..", __dir__)
  # The version of Ruby for which an extension is built: it works with all releases of the series.
  RUBY_SERIES = RUBY_VERSION[/\d+\.\d+/]
  TARGET = File.join(RUBY, "lib/leasehold/leasehold_ruby.#{RbConfig::CONFIG.fetch("DLEXT")}")

  module_function

  # Builds the extension for this Ruby and copies it to `into`.
  def install(*arguments, into: TARGET)
    copy(build(*arguments), into)
  end

  # Copies a built extension to the path from which `require` loads it.
  def copy(library, into = TARGET)
    FileUtils.mkdir_p(File.dirname(into))
    # A new file that replaces the old one at once: a running process may have the old one mapped into memory,
    # and another may load the extension just now.
    FileUtils.cp(library, "#{into}.#{Process.pid}")
    File.rename("#{into}.#{Process.pid}", into)
  end

  # Builds the extension and returns the path of cargo's artefact.
  def build(*arguments)
    command = %w[cargo build --package leasehold-ruby --message-format=json-render-diagnostics]
    output, status = Open3.capture2({ "RUBY" => RbConfig.ruby }, *command, *arguments, chdir: RUBY)
    raise "the extension does not build: fix the errors that cargo printed" unless status.success?

    artefacts = output.lines.map { |line| JSON.parse(line) }
    artefacts.find { |artefact| artefact.dig("target", "name") == "leasehold_ruby" }.fetch("filenames").first
  end
end
