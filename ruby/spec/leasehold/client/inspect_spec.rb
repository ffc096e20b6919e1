# frozen_string_literal: true

require "pp"

require "leasehold/client"

# Ruby puts the result of `inspect` into error messages, and people put it into logs (V09).
RSpec.describe "inspect and to_s of the client's objects" do
  include Support::VerificationRuns

  # Returns all texts into which Ruby converts an object, including a NoMethodError's message.
  def texts_of(object)
    error = begin
      object.no_such_method
    rescue NoMethodError => e
      e.message
    end
    [object.inspect, object.to_s, "#{object}", PP.pp(object, +""), error].join("\n")
  end

  it "contain no claimed value" do
    claim = username("alice")
    record = record(7, "alice")
    page = Leasehold::RecordPage.new(records: [record], truncated: false, server_time: now)
    decoded = received_page([record]).tap(&:records)
    all = [claim, [claim], { claim: claim }, record, page, received_page([record]), decoded].map { |object| texts_of(object) }

    expect(all.join).not_to include("alice")
    expect(claim.inspect).to start_with("#<struct Leasehold::Claim bucket_type=4, bucket_value=[FILTERED], subject_type=4")
    expect(claim.bucket_value).to eq("alice")
  end

  it "describe a page in one line, without decoding it" do
    page = received_page([record(7, "alice")])

    expect(page.inspect).to match(/\A#<Leasehold::Client::ReceivedPage of \d+ bytes, server_time=.{,40}>\z/)
    expect(page[:records]).to be_nil
    page = Leasehold::RecordPage.new(records: [record(7, "alice")] * 2, truncated: true, server_time: nil)
    expect(page.inspect).to eq("#<Leasehold::RecordPage of 2 records, truncated=true, server_time=nil>")
  end

  it "contain the number of claims of a verification update" do
    run = run([]) { |session| session.rows([row(7, "alice")], now: now) }

    expect(texts_of(next_update(run))).not_to include("alice")
    expect(next_update(run).inspect).to eq("#<struct Leasehold::Verification::Begin create_count=1, destroy_count=0>")
  end

  it "contain no private key" do
    Support::Certificates.run do |certificates|
      tls = certificates.cell(1)
      client = client_of("127.0.0.1:1", tls: tls)
      pems = tls.transform_values { |path| File.read(path) }
      parts = [client, Leasehold::Client::Credentials.load(tls), Leasehold::Client::Handshake.new("127.0.0.1:1", pems, 1)]

      expect(parts.map { |part| texts_of(part) }.join).not_to include("PRIVATE KEY")
      expect(client.inspect).to eq("#<Leasehold::Client of cell 1 at 127.0.0.1:1>")
    end
  end
end
