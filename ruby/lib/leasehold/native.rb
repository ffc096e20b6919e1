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
  require "leasehold/leasehold_ruby"
end
