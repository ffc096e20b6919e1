# frozen_string_literal: true

require "fileutils"
require "socket"
require "tmpdir"

module Support
  # A pgbouncer before the cluster of this process, which pools connections per transaction. Successive transactions of a client
  # have different sessions of the database.
  class Bouncer
    SETTINGS = <<~INI
      [databases]
      * = host=127.0.0.1 port=%<cluster>d
      [pgbouncer]
      listen_addr = 127.0.0.1
      listen_port = %<port>d
      unix_socket_dir =
      pool_mode = transaction
      server_round_robin = 1
      auth_type = trust
      auth_file = %<users>s
      default_pool_size = 3
    INI
    private_constant :SETTINGS

    def self.run
      bouncer = new.start
      yield bouncer
    ensure
      bouncer&.clear
    end

    def start
      @directory = Dir.mktmpdir("leasehold-bouncer")
      File.chmod(0o755, @directory)
      @port = TCPServer.open("127.0.0.1", 0) { |server| server.local_address.ip_port }
      run_program
      Waiting.wait_for("pgbouncer to start") { answers? }
      self
    end

    # @return [String] the address of a database, without prepared statements, which belong to a session
    def url(database)
      "postgres://#{PostgresCluster::OWNER}@127.0.0.1:#{@port}/#{database}?prepared_statements=false"
    end

    # Opens all sessions of the pool to a database.
    def fill(database)
      clients = Array.new(3) { PG.connect(host: "127.0.0.1", port: @port, user: PostgresCluster::OWNER, dbname: database) }
      clients.each { |client| client.exec("BEGIN; SELECT 1") }
      clients.each { |client| client.exec("COMMIT") }
    ensure
      clients&.each(&:close)
    end

    def clear
      @guard&.close
      Process.wait(@pid) if @pid
      FileUtils.rm_rf(@directory)
    end

    private

    def run_program
      paths = %w[users.txt pgbouncer.ini].map { |name| File.join(@directory, name) }
      File.write(paths[0], %("#{PostgresCluster::OWNER}" ""\n))
      File.write(paths[1], format(SETTINGS, cluster: PostgresCluster.instance.port, port: @port, users: paths[0]))
      program = ENV["PATH"].split(":").push("/usr/sbin").map { |path| File.join(path, "pgbouncer") }.find { |path| File.exist?(path) }
      raise "pgbouncer is not installed" unless program

      reader, @guard = IO.pipe
      command = [*PostgresCluster.instance.as_user, program, paths[1]]
      @pid = spawn("sh", "-c", PostgresCluster::WHILE_OPEN, "sh", *command, in: reader, %i[out err] => File.join(@directory, "log"))
      reader.close
    end

    def answers?
      TCPSocket.open("127.0.0.1", @port, &:close)
      true
    rescue Errno::ECONNREFUSED
      false
    end
  end
end
