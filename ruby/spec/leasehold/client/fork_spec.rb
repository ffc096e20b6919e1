# frozen_string_literal: true

# Runs scripts in new processes: gRPC's core cannot be used on both sides of a fork, and this
# process has used it.
RSpec.describe Leasehold::Client, "across a fork" do
  include Support::Scripts

  around { |example| Support::ClaimsServer.run { |server| @server = server and example.run } }

  PRELUDE = <<~'RUBY'
    require "leasehold"
    Leasehold.configure do |c|
      c.address = ARGV.fetch(0)
      c.cell_id = 1
      c.tls = { insecure: true }
      c.request_deadline_seconds = 30
    end
    def claim(name)
      { bucket_type: 4, bucket_value: name, subject_type: 4, subject_id: 7, source_type: 1, source_id: [7].pack("Q>") }
    end
    # `leave` is how the child ends: with `exit!`, Ruby does not free the parent's objects of gRPC.
    def in_child(leave = :exit)
      reader, writer = IO.pipe
      pid = fork do
        writer.write(yield)
        writer.close
        Process.public_send(leave, true)
      end
      Process.wait(pid)
      writer.close
      raise "the child failed: #{$?}" unless $?.success?
      reader.read
    end
    def attempt
      yield
    rescue Leasehold::Error => e
      e.class.name
    end
  RUBY

  def run(script)
    run_script(PRELUDE + script, @server.address)
  end

  it "connects anew in each child, as Puma and Sidekiq fork them" do
    uuids = run(<<~'RUBY')
      preloaded = Leasehold.client
      2.times { |n| puts in_child { Leasehold.client.begin_update(creates: [claim("child#{n}")]).uuid } }
      puts preloaded.begin_update(creates: [claim("parent")]).uuid
    RUBY
    expect(client_of(@server.address).list_leases.leases.map(&:uuid)).to match_array(uuids).and have_attributes(size: 3)
  end

  it "raises Forked in the child if the parent has made a call, and keeps the parent's connection" do
    output = run(<<~'RUBY')
      Leasehold.client.list_leases
      puts in_child(:exit!) { attempt { Leasehold.client.list_leases } }
      puts Leasehold.client.begin_update(creates: [claim("parent")]).fence
    RUBY
    expect(output).to eq(["Leasehold::Error::Forked", "1"])
  end
end
