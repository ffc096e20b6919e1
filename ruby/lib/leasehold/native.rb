# frozen_string_literal: true

require "leasehold"

module Leasehold
  # The engine: all rules of the protocol, compiled from Rust.
  module Native
    # Loads the extension: the precompiled one for this version of Ruby, or else the one that was built on
    # this machine.
    module Loader
      BUILT = "leasehold/leasehold_ruby"

      class << self
        # @param directory [String] the directory of this file
        # @raise [LoadError] if there is no extension for this Ruby, or if it cannot be loaded; the message names
        #   the cause
        def load(directory = __dir__)
          series = RUBY_VERSION[/\d+\.\d+/]
          return if required?("leasehold/#{series}/leasehold_ruby") || required?(BUILT)

          others = Dir.glob("*/leasehold_ruby.*", base: directory).map { |path| File.dirname(path) }.sort
          raise LoadError, others.empty? ? missing : unsupported(series, others)
        end

        private

        # Returns false if there is no such file. If the file exists but cannot be loaded, raises the loader's
        # own error: its `path` is the file's path, not the required feature.
        def required?(feature)
          require feature
          true
        rescue LoadError => error
          raise unless error.path == feature

          false
        end

        def missing
          "the extension `#{BUILT}` is missing: build it with `rake compile` in the gem's directory"
        end

        def unsupported(series, others)
          "the gem for this platform has extensions for Ruby #{others.join(', ')}, not for #{series}: install the source gem, " \
            "with `gem install leasehold --platform ruby`"
        end
      end
    end

    Loader.load
  end
end
