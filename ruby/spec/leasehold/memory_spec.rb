# frozen_string_literal: true

require "open3"
require "rbconfig"

# The extension under a collector that runs at every chance, and in a loop that would show what is never given back.
RSpec.describe "memory of the extension" do
  include Support::EngineCalls

  # Kilobytes that the process has, and objects that Ruby has, once all that can be given back is.
  def kept
    GC.start
    [File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i, GC.stat(:heap_live_slots)]
  end

  # In a process of its own, whose few objects are looked through in no time.
  it "is sound where the collector runs at every allocation" do
    script = <<~RUBY
      require "leasehold"
      require "#{File.expand_path("../support/engine_calls", __dir__)}"
      extend Support::EngineCalls
      expected = everything
      GC.stress = true
      found = everything
      GC.stress = false
      abort "expected \#{expected}, found \#{found}" unless found == expected
    RUBY
    output, status = Open3.capture2e(RbConfig.ruby, "-I", File.expand_path("../../lib", __dir__), "-e", script)
    expect(status).to be_success, output
  end

  it "is given back: 10,000 rounds keep nothing" do
    1_000.times { everything }
    before = kept
    10_000.times { everything }
    kilobytes, objects = kept.zip(before).map { |now, earlier| now - earlier }
    expect(kilobytes).to be < 8 * 1024
    expect(objects).to be < 2_000
  end
end
