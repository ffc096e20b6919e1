# frozen_string_literal: true

RSpec.describe Leasehold::Client, "over TLS" do
  around { |example| Support::Certificates.run { |certificates| @certificates = certificates and example.run } }

  let(:certificates) { @certificates }
  let(:cell) { certificates.cell(1) }

  def with_server(tls: certificates.server)
    Support::ClaimsServer.run(tls: tls) { |server| yield server.address.sub("127.0.0.1", "localhost") }
  end

  # Expects a permanent error that names the settings to check.
  def fail_the_handshake
    raise_error(Leasehold::Error::Misconfigured, /check that its certificate is signed by `tls.ca`.* the host in `address`/) { |error|
      expect(error).to have_attributes(code: "TLS_REFUSED", temporary?: false)
    }
  end

  it "identifies the caller by its certificate alone" do
    with_server do |address|
      client = client_of(address, tls: cell)
      client.commit_update(client.begin_update(creates: [username("alice")]).uuid)
      posing = client_of(address, tls: certificates.cell(2))
      expect { posing.begin_update(creates: [username("bob")]) }.to raise_error(Leasehold::Error::Denied)
      expect { client.get_record(4, "alice") }.to raise_error(Leasehold::Error::Denied)
      expect(client_of(address, tls: certificates.admin).get_record(4, "alice").cell_id).to eq(1)
    end
  end

  it "refuses a server certificate of another authority" do
    with_server do |address|
      Support::Certificates.run do |others|
        client = client_of(address, tls: cell.merge(ca: others.cell(1)[:ca]))
        expect { client.list_leases }.to fail_the_handshake
      end
    end
  end

  it "refuses a server certificate for another host" do
    with_server(tls: certificates.server(names: "DNS:elsewhere.example.com")) do |address|
      expect { client_of(address, tls: cell).list_leases }.to fail_the_handshake
    end
  end

  it "does not fall back to a connection without TLS" do
    with_server(tls: nil) { |address| expect { client_of(address, tls: cell).list_leases }.to fail_the_handshake }
  end

  # gRPC's core reports a server that refuses the certificate as unavailable.
  it "reports a server that refuses the cell's certificate, and the settings to check" do
    with_server do |address|
      Support::Certificates.run do |others|
        client = client_of(address, tls: others.cell(1).merge(ca: cell[:ca]))
        calls = [-> { client.list_leases }, -> { client.begin_update(creates: [username("alice")]) }]
        calls.each do |call|
          expect(&call).to raise_error(Leasehold::Error::Misconfigured, /not accept `tls.certificate` \(.*`client_ca`/) { |error|
            expect(error).to have_attributes(code: "TLS_REFUSED", temporary?: false)
          }
        end
      end
    end
  end

  it "reports a server that closes its connections as unavailable" do
    TCPServer.open("localhost", 0) do |server|
      closing = Thread.new { loop { server.accept.close } }
      client = client_of("localhost:#{server.addr[1]}", tls: cell)
      expect { client.list_leases }.to raise_error(Leasehold::Error::Unavailable)
    ensure
      closing.kill
    end
  end

  it "reports a stopped server as unavailable" do
    address = with_server(&:itself)
    expect { client_of(address, tls: cell).list_leases }.to raise_error(Leasehold::Error::Unavailable)
  end

  it "fails without TLS if the server requires it" do
    with_server do |address|
      client = client_of(address, request_deadline_seconds: 1)
      expect { client.list_leases }.to raise_error(Leasehold::Error)
    end
  end

  it "refuses an invalid `tls` setting with its reason" do
    {
      nil => /`tls` is nil/,
      {} => /use `ca`, `certificate` and `key`/,
      cell.merge(insecure: true) => /or only `insecure: true`/,
      { insecure: false } => /use `ca`/,
      cell.merge(key: File.join(certificates.directory, "absent.key")) => /`tls.key` cannot be read/,
      cell.merge(ca: nil) => /`tls.ca` is nil: set the path of a PEM file .*`LEASEHOLD_CA`/,
      cell.merge(key: "") => /`tls.key` is "": set the path of a PEM file .*`LEASEHOLD_KEY`/,
      cell.merge(ca: cell[:key]) => /`tls.ca` is not valid PEM/,
      cell.merge(key: certificates.cell(2)[:key]) => /`tls.key` is not the key of `tls.certificate`/
    }.each do |tls, message|
      expect { client_of("localhost:1", tls: tls) }.to raise_error(Leasehold::Error::Misconfigured, message)
    end
  end
end
