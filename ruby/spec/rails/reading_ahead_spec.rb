# frozen_string_literal: true

require "rails_helper"

RSpec.describe "pages read ahead by verification", :rails do
  let(:listed) { [] }
  let(:rows) { Leasehold::Verifier::RowReader.new(User) }
  let(:pages) { Leasehold::Verifier::PageReader.new(rows) { |step| list(step) } }

  before { insert_users(1..9) }

  def list(step)
    listed << step
    Leasehold.client.list_records(source_type: 1, bucket_types: [4, 10], after: step.after, upto: step.upto)
  end

  def id(number)
    number && [number].pack("Q>")
  end

  # @return [Array<Integer>] the ids of a page's rows, fetched in a session's steps
  def page(after, upto, rows: 2)
    expect(pages.fetch(Leasehold::Verification::FindBound.new(id(after), rows))).to eq(id(upto))
    pages.fetch(Leasehold::Verification::ListRecords.new(id(after), id(upto)))
    keys = pages.fetch(Leasehold::Verification::ReadRows.new(id(after), id(upto))).rows.map(&:first)
    # Keys are encoded already if other examples left subclasses of the model behind.
    keys.map { |key| key.is_a?(String) ? key.unpack1("Q>") : key }
  end

  def statements
    seen = 0
    ActiveSupport::Notifications.subscribed(->(*) { seen += 1 }, "sql.active_record") { yield }
    seen
  end

  it "are two at most, each with the server's records before its rows" do
    page(nil, 2)
    pages.read_ahead { true }
    expect(listed.map(&:after)).to eq([nil, id(2), id(4)])

    expect(statements { expect([page(2, 4), page(4, 6)]).to eq([[3, 4], [5, 6]]) }).to eq(0)
    expect(statements { expect(page(6, 8)).to eq([7, 8]) }).to be > 0
    pages.read_ahead { true }
    expect(statements { expect(page(8, nil)).to eq([9]) }).to eq(0)
    expect { pages.read_ahead { true } }.not_to(change { listed.size })
  end

  it "are judged by the time of the listing, so that rows changed after it count as recent (V02)" do
    allow(Leasehold::Verifier).to receive(:now).and_return(0, 100, 3700)
    pages.fetch(Leasehold::Verification::FindBound.new(nil, 10))
    pages.fetch(Leasehold::Verification::ListRecords.new(nil, nil))
    judged_at = pages.fetch(Leasehold::Verification::ReadRows.new(nil, nil)).now

    clock = ActiveRecord::Base.connection.select_value("SELECT extract(epoch FROM clock_timestamp())").to_f
    expect(clock - judged_at.to_f).to be_within(60).of(3600)
  end

  it "are none once the call has ended" do
    page(nil, 2)
    pages.read_ahead { listed.size < 2 }

    expect(listed.size).to eq(2)
  end

  it "are discarded, with all later ones, at a step that they do not answer" do
    page(nil, 2)
    pages.read_ahead { true }

    expect(page(3, 6, rows: 3)).to eq([4, 5, 6])
    expect(statements { page(2, 4) }).to be > 0
  end

  it "are discarded if the server truncates a page" do
    pages.fetch(Leasehold::Verification::FindBound.new(nil, 4))
    pages.fetch(Leasehold::Verification::ListRecords.new(nil, id(4)))
    pages.fetch(Leasehold::Verification::ReadRows.new(nil, id(3)))

    expect { pages.read_ahead { true } }.not_to(change { listed.size })
  end

  describe "in a run" do
    # The rows suffice for several updates. `warm_up` makes the first call, which starts gRPC's threads: the
    # example must not count them.
    before do
      insert_users(10..2500)
      Leasehold.client.warm_up
      @threads = Thread.list
    end

    def others
      Thread.list - @threads
    end

    it "report a failure when the page is requested, and the begun update is rolled back" do
      reads = 0
      stub_const("Failing", Class.new(User))
      Failing.cells_claims_scope { (reads += 1) > 3 ? raise(ActiveRecord::StatementInvalid, "of the next page") : User.all }

      expect { Leasehold::Verifier.new(Failing).run }.to raise_error(ActiveRecord::StatementInvalid, "of the next page")
      expect(claimed(User, :username) + outstanding_leases + lease_rows).to be_empty
      expect(others).to be_empty
    end

    # Ends the session of the run's connection when the n-th call of this name begins.
    def lose_session(name, number)
      connection = ActiveRecord::Base.connection
      pid = connection.select_value("SELECT pg_backend_pid()")
      calls = 0
      subscriber = Object.new
      subscriber.define_singleton_method(:finish) { |*| }
      subscriber.define_singleton_method(:start) do |*|
        next unless (calls += 1) == number

        Support::Cell[1].query("SELECT pg_terminate_backend(#{pid})")
        Support::Waiting.wait_for("the end") { Support::Cell[1].query("SELECT FROM pg_stat_activity WHERE pid = #{pid}").empty? }
      end
      ActiveSupport::Notifications.subscribed(subscriber, "#{name}.leasehold") { yield }
    ensure
      connection.reconnect!
    end

    { "an update is begun" => [:begin_update, 2], "an update is committed" => [:commit_update, 1],
      "a page is listed" => [:list_records, 2] }.each do |moment, call|
      it "end the run if its database session, and with it the lock, is lost while #{moment} (V10)" do
        pages = 0
        lose_session(*call) do
          verifier = Leasehold::Verifier.new(User) { pages += 1 }
          expect { verifier.run }.to raise_error(ActiveRecord::ActiveRecordError)
        end

        expect(pages).to be < 3
        expect(User.count).to be > 2 * 1000
      end
    end

    it "end with the update in progress if the run is interrupted" do
      lists = 0
      stop = ->(*) { Process.kill("STOP", server.pid) if (lists += 1) == 2 }
      ActiveSupport::Notifications.subscribed(stop, "list_records.leasehold") do
        expect { Timeout.timeout(2) { Leasehold::Verifier.new(User).run } }.to raise_error(Timeout::Error)
      end
      Support::Waiting.wait_for("the thread") { others.empty? }
    ensure
      Process.kill("CONT", server.pid)
    end
  end
end
