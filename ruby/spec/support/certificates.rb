# frozen_string_literal: true

require "openssl"
require "tmpdir"

module Support
  # An authority, and certificates that it signs, as files of a directory.
  class Certificates
    DAY_SECONDS = 86_400

    attr_reader :directory

    def self.run
      Dir.mktmpdir("leasehold-certificates") { |directory| yield new(directory) }
    end

    def initialize(directory)
      @directory = directory
      @authority_key = key
      @authority = certificate("authority", @authority_key, "basicConstraints" => "CA:TRUE")
      write("ca.pem", @authority)
    end

    # What a server takes.
    def server(names: "DNS:localhost,IP:127.0.0.1")
      files = issue("server", names)
      { certificate: files[:certificate], key: files[:key], client_ca: files[:ca] }
    end

    # What the client of a cell takes.
    def cell(id)
      issue("cell-#{id}", "URI:spiffe://leasehold/cell/#{id}")
    end

    # What the client of an administrator takes.
    def admin
      issue("admin", "URI:spiffe://leasehold/admin")
    end

    private

    def issue(name, alternative_names)
      own = key
      signed = certificate(name, own, "subjectAltName" => alternative_names)
      { ca: path("ca.pem"), certificate: write("#{name}.pem", signed), key: write("#{name}.key", own) }
    end

    def key
      OpenSSL::PKey::EC.generate("prime256v1")
    end

    def certificate(name, own, extensions)
      built = OpenSSL::X509::Certificate.new
      built.version = 2
      built.serial = rand(1 << 64)
      built.subject = OpenSSL::X509::Name.new([["CN", name]])
      built.issuer = @authority ? @authority.subject : built.subject
      built.public_key = own
      built.not_before = Time.now - DAY_SECONDS
      built.not_after = Time.now + DAY_SECONDS
      factory = OpenSSL::X509::ExtensionFactory.new
      extensions.each { |oid, value| built.add_extension(factory.create_extension(oid, value, oid == "basicConstraints")) }
      built.sign(@authority_key, "SHA256")
    end

    def write(name, object)
      path(name).tap { |path| File.write(path, object.to_pem) }
    end

    def path(name)
      File.join(@directory, name)
    end
  end
end
