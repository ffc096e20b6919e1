# frozen_string_literal: true

require "leasehold"

module Leasehold
  # The engine: all rules of the protocol, compiled from Rust.
  module Native; end
end

begin
  # A precompiled gem contains one extension per version of Ruby.
  require "leasehold/#{RUBY_VERSION[/\d+\.\d+/]}/leasehold_ruby"
rescue LoadError
  begin
    require "leasehold/leasehold_ruby"
  rescue LoadError => error
    raise error, "#{error.message}: the extension is missing, build it with `rake compile` in the gem's directory",
          error.backtrace
  end
end
