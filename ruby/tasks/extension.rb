# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "rbconfig"

# The extension, built by cargo and laid where `require` finds it.
module Extension
  RUBY = File.expand_path("..", __dir__)
  TARGET = File.join(RUBY, "lib/leasehold/leasehold_ruby.#{RbConfig::CONFIG.fetch("DLEXT")}")

  module_function

  # Builds the extension for this Ruby.
  def install(*arguments, into: TARGET)
    lay(build(*arguments), into)
  end

  # Lays a built extension at the path where `require` finds it.
  def lay(built, into = TARGET)
    FileUtils.mkdir_p(File.dirname(into))
    # A new file, since a process may have the old one loaded.
    FileUtils.rm_f(into)
    FileUtils.cp(built, into)
  end

  # The path of what cargo built.
  def build(*arguments)
    command = %w[cargo build --package leasehold-ruby --message-format=json-render-diagnostics]
    output, status = Open3.capture2({ "RUBY" => RbConfig.ruby }, *command, *arguments, chdir: RUBY)
    raise "the extension does not build" unless status.success?

    artefacts = output.lines.map { |line| JSON.parse(line) }
    artefacts.find { |one| one.dig("target", "name") == "leasehold_ruby" }.fetch("filenames").first
  end
end
