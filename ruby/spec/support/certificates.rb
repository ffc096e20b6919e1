# frozen_string_literal: true

require "openssl"
require "tmpdir"

module Support
  # A certificate authority and the certificates it signs, as files in a directory.
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

    # @return [Hash] the TLS settings of a server
    def server(names: "DNS:localhost,IP:127.0.0.1")
      files = issue("server", names)
      { certificate: files[:certificate], key: files[:key], client_ca: files[:ca] }
    end

    # @return [Hash] the TLS settings of a cell's client
    def cell(id)
      issue("cell-#{id}", "URI:spiffe://leasehold/cell/#{id}")
    end

    # @return [Hash] the TLS settings of an administrator's client
    def admin
      issue("admin", "URI:spiffe://leasehold/admin")
    end

    private

    def issue(name, alternative_names)
      own_key = key
      signed = certificate(name, own_key, "subjectAltName" => alternative_names)
      { ca: path("ca.pem"), certificate: write("#{name}.pem", signed), key: write("#{name}.key", own_key) }
    end

    def key
      OpenSSL::PKey::EC.generate("prime256v1")
    end

    def certificate(name, own_key, extensions)
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = rand(1 << 64)
      certificate.subject = OpenSSL::X509::Name.new([["CN", name]])
      certificate.issuer = @authority ? @authority.subject : certificate.subject
      certificate.public_key = own_key
      certificate.not_before = Time.now - DAY_SECONDS
      certificate.not_after = Time.now + DAY_SECONDS
      factory = OpenSSL::X509::ExtensionFactory.new
      extensions.each { |oid, value| certificate.add_extension(factory.create_extension(oid, value, oid == "basicConstraints")) }
      certificate.sign(@authority_key, "SHA256")
    end

    def write(name, object)
      path(name).tap { |path| File.write(path, object.to_pem) }
    end

    def path(name)
      File.join(@directory, name)
    end
  end
end
