# frozen_string_literal: true

require "open3"
require "rbconfig"

# Runs the extension under a garbage collector that runs at every allocation, and in a loop that
# reveals leaks. Each runs in a new process, whose few objects are collected quickly, and whose memory
# no other spec has used: after large ones it grows by megabytes more.
RSpec.describe "memory of the extension" do
  # @return [String] the output of a script that can call {Support::EngineCalls}
  def run_script(script)
    requires = <<~RUBY
      require "leasehold"
      require "#{File.expand_path("../support/engine_calls", __dir__)}"
      extend Support::EngineCalls
    RUBY
    library = File.expand_path("../../lib", __dir__)
    output, status = Open3.capture2e(RbConfig.ruby, "-I", library, "-e", requires + script)
    expect(status).to be_success, output
    output
  end

  it "survives a collection at every allocation" do
    run_script(<<~'RUBY')
      expected = call_everything
      GC.stress = true
      actual = call_everything
      GC.stress = false
      abort "expected #{expected}, got #{actual}" unless actual == expected
    RUBY
  end

  it "is freed: 10,000 rounds leak nothing" do
    output = run_script(<<~'RUBY')
      # Returns the process's memory in kilobytes and the number of live Ruby objects, after a collection.
      def memory_and_objects
        GC.start
        [File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i, GC.stat(:heap_live_slots)]
      end

      1_000.times { call_everything }
      before = memory_and_objects
      10_000.times { call_everything }
      puts memory_and_objects.zip(before).map { |now, earlier| now - earlier }
    RUBY
    kilobytes, objects = output.split.map { |number| Integer(number) }
    expect(kilobytes).to be < 8 * 1024
    expect(objects).to be < 2_000
  end
end
