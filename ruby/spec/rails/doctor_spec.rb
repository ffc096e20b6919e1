# frozen_string_literal: true

require "rails_helper"

RSpec.describe "leasehold:doctor", :rails do
  # @return [Array(Integer, String)] the exit code and the output
  def doctor
    output = StringIO.new
    Leasehold::Console.new(output: output, dry_run: false).doctor
    [0, output.string]
  rescue Leasehold::Console::Failed => error
    [error.status, output.string]
  end

  def configure(**settings)
    Leasehold.configure { |config| settings.each { |name, value| config.public_send("#{name}=", value) } }
  end

  it "passes if the application can claim" do
    code, output = doctor

    expect(output.lines).to all(start_with("ok     "))
    expect(output).to include("settings: cell 1, server #{server.address}", "server: answers", "model User: claims `id`, `username`")
    expect(output.scan(/^ok     database .*: has its tables and the trigger$/).size).to eq(2)
    expect(code).to eq(0)
  end

  it "tells the versions of all parts" do
    versions = { "gem" => Leasehold::VERSION, "server" => Leasehold::VERSION, "extension" => Leasehold::VERSION,
                 "Rails" => Rails.version, "Ruby" => RUBY_VERSION }
    expected = versions.map { |name, version| Regexp.escape("#{name} #{version}") }.join(", ")

    expect(doctor.last).to match(/^ok     versions: #{expected}, google-protobuf \d+\.\d+\S*, grpc \d+\.\d+\S*$/)
  end

  it "warns of a server that is older than the gem" do
    stub_const("Leasehold::VERSION", "99.0.0")

    expect(doctor).to match(
      [0, /^warn   versions: gem 99\.0\.0, server #{Regexp.escape(Leasehold::Native::VERSION)}, .*\n       the server is older than the gem: upgrade/]
    )
  end

  it "reports an unreachable server and an invalid setting, with the exit code of each" do
    server.stop
    expect(doctor).to match([5, /^fault  server: Leasehold::Error::Unavailable: .*\n       .*check that the claims server runs/])

    configure(address: "nowhere")
    expect(doctor).to match([2, /^fault  settings: .*`address` is "nowhere"/])
  end

  it "says which setting is wrong if the server does not know the cell, or `tls` lacks its keys" do
    configure(cell_id: 99)
    expect(doctor).to match([2, /^fault  server: .*names no cell that this service knows: set `cell_id`, which is 99, to the id of a cell in the/])

    configure(cell_id: 1, tls: {})
    expect(doctor).to match([2, /^fault  settings: .*`tls` has the keys \[\]: use `ca`, `certificate` and `key`, or only `insecure: true`$/])
  end

  it "reports an invalid address and all other checks in a process that has made no call" do
    script = <<~RUBY
      begin
        Leasehold::Console.new(dry_run: false).doctor
      rescue Leasehold::Console::Failed => error
        puts error.message
      end
    RUBY
    { "http://127.0.0.1:7171" => "set it to host and port of the claims server, without `http://`", "" => 'is ""', "host" => 'is "host"' }
      .each do |address, text|
      output = Support::CellProcess.run(Support::Cell[1], address, script)

      expect(output).to match(/^fault  settings: .*#{Regexp.escape(text)}.*^ok     versions: .*^ok     database .*^ok     model User: /m)
      expect(output).to match(/^1 of \d+ checks failed$/)
    end
  end

  it "reports an error that it does not expect as a fault, and goes on" do
    configure(stale_after_seconds: "ten minutes", lease_databases: ["users"])
    code, output = doctor

    expect(output).to match(/^fault  settings: .*^fault  databases: NoMethodError: .*connection_pool.*^ok     model User: /m)
    expect(code).to eq(1)
  ensure
    configure(stale_after_seconds: 600, lease_databases: nil)
  end

  it "reports a missing table and a disabled trigger" do
    KeysRecord.connection.execute("ALTER TABLE cells_claims_verifications RENAME TO away")
    expect(doctor).to match([1, /^fault  database .*: the table `cells_claims_verifications` is missing: run/])
    KeysRecord.connection.execute("ALTER TABLE away RENAME TO cells_claims_verifications")

    trigger = "TRIGGER cells_outstanding_leases_refuse_late_commit"
    ActiveRecord::Base.connection.execute("ALTER TABLE cells_outstanding_leases DISABLE #{trigger}")
    expect(doctor).to match([1, /^fault  database .*: the trigger of `cells_outstanding_leases` is missing, disabled/])
  ensure
    ActiveRecord::Base.connection.execute("ALTER TABLE cells_outstanding_leases ENABLE #{trigger}")
  end

  it "reports a certificate that ends soon or cannot be read" do
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.public_key = key
    certificate.not_before = Time.now - 60
    certificate.not_after = Time.now + 86_400
    certificate.sign(key, OpenSSL::Digest.new("SHA256"))
    Tempfile.create("certificate") do |file|
      file.write(certificate.to_pem)
      file.close
      configure(tls: { ca: file.path, certificate: file.path, key: file.path })
      expect(doctor.last).to match(/^fault  certificates: the certificate of `tls.ca` ends on .*: replace it$/)
    end

    configure(tls: { ca: nil, certificate: nil, key: nil })
    expect(doctor.last).to match(/^fault  certificates: `tls.ca` is nil: set the path of a PEM file .* reads it from `LEASEHOLD_CA`\)$/)
    configure(tls: { ca: "/absent.pem", certificate: "/absent.pem", key: "/absent.pem" })
    expect(doctor.last).to match(/^fault  certificates: `tls.ca` cannot be read .*: set it to the path of a PEM file$/)
  end

  it "reports models whose flags are off, and those that cannot be verified" do
    Leasehold.configuration.feature_enabled { |flag| flag != :cells_claims_emails }
    stub_const("Misnamed", Class.new(ApplicationRecord) do
      self.table_name = "emails"
      include Cells::Claimable
      cells_claims_attribute :email, type: :USERNAMES, feature_flag: :cells_claims_users
    end)
    allow(Leasehold::Models).to receive(:names).and_return(%w[Email Misnamed])

    expect(doctor).to match([2, /^ok     model Email: claims nothing: .*\nfault  model Misnamed: .*cells_claims_metadata/])
  ensure
    Leasehold.configuration.feature_enabled { true }
    Leasehold::Models.instance_variable_get(:@names).delete("Misnamed")
  end
end
