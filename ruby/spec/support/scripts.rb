# frozen_string_literal: true

require "open3"
require "rbconfig"

module Support
  # Runs Ruby scripts with the gem in new processes.
  module Scripts
    # Runs a script that must succeed, with the server's address as its argument.
    #
    # @return [Array<String>] the lines of its output
    def run_script(script, address)
      # `-W0` turns warnings off: Ruby 3.2 and later warn of gRPC 1.51.
      command = [RbConfig.ruby, "-W0", "-I", File.expand_path("../../lib", __dir__), "-e", script, address]
      # A forked child that waits in C code ignores every signal but this one, and keeps the output open.
      output, status = Open3.capture2e("timeout", "--signal=KILL", "300", *command)
      expect(status).to be_success, output
      output.lines.map(&:chomp)
    end
  end
end
