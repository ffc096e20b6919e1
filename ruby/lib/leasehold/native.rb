# frozen_string_literal: true

require "leasehold"

module Leasehold
  # The engine: every rule of the protocol, in Rust.
  module Native; end
end

begin
  # A precompiled gem has one extension for each version of Ruby.
  require "leasehold/#{RUBY_VERSION[/\d+\.\d+/]}/leasehold_ruby"
rescue LoadError
  begin
    require "leasehold/leasehold_ruby"
  rescue LoadError => error
    raise error, "#{error.message}: the extension is not there; `rake compile` in the gem's directory builds it", error.backtrace
  end
end
