# frozen_string_literal: true

require "open3"
require "rbconfig"

RSpec.describe "Leasehold::Models" do
  # Runs in a new process: a call of a method of a freed class can crash Ruby later (Ruby's Bug #18586).
  it "lists no anonymous class that Ruby is about to free" do
    script = <<~RUBY
      require "set"
      require "leasehold"
      require "leasehold/models"
      10_000.times { Leasehold::Models.add(Class.new) }
      # Finds out which objects are unreachable, and frees them later.
      GC.start(immediate_sweep: false)
      print Leasehold::Models.classes.size
    RUBY
    output, status = Open3.capture2e(RbConfig.ruby, "-I", File.expand_path("../../lib", __dir__), "-e", script)

    expect(status).to be_success, output
    # The stack may still refer to some of the classes.
    expect(Integer(output)).to be < 100
  end
end
