# frozen_string_literal: true

require "fileutils"
require "rbconfig"

module Support
  # The extension that the specs load. `rake spec` installs it; `rspec` alone does not.
  module InstalledExtension
    RUBY = File.expand_path("../..", __dir__)
    PATH = File.join(RUBY, "lib/leasehold/leasehold_ruby.#{RbConfig::CONFIG.fetch("DLEXT")}")
    # The crates that the extension contains.
    SOURCES = %w[ext/leasehold ../bindings ../core].map { |crate| File.join(RUBY, crate, "src/**/*") }.freeze
    REMEDY = "run `rake compile:test` in `ruby`, or `rake spec`"

    module_function

    # Refuses to run the specs without the extension, or with another one than `LEASEHOLD_EXTENSION` names, which only
    # rake installs. Warns of an extension that may be outdated.
    #
    # @raise [RuntimeError] with the remedy
    def check(path = PATH, wanted: ENV.fetch("LEASEHOLD_EXTENSION", nil), sources: Dir.glob(SOURCES))
      raise "the extension is not built: #{REMEDY}" unless File.exist?(path)
      raise "the extension is not the one that `LEASEHOLD_EXTENSION` names: #{REMEDY}" if wanted && !FileUtils.identical?(path, wanted)
      return if wanted

      newer = sources.find { |source| File.file?(source) && File.mtime(source) > File.mtime(path) }
      warn "warning: the extension is older than `#{File.basename(newer)}`: #{REMEDY}" if newer
    end
  end
end
