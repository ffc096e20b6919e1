# frozen_string_literal: true

require "etc"
require "fileutils"
require "open3"
require "pg"
require "socket"
require "tmpdir"

module Support
  # A PostgreSQL cluster that lives as long as this process: real server processes on a free port,
  # with a temporary directory.
  class PostgresCluster
    PROGRAMS = Dir["/usr/lib/postgresql/*/bin"].max_by { |path| path[/\d+/].to_i }
    # The user that runs PostgreSQL if this process is root, which PostgreSQL refuses.
    USER = "postgres"
    # Shell script that runs a program until this process closes its end of the standard input. The
    # program then stops even if this process is killed.
    WHILE_OPEN = '"$@" <&- & pid=$!; cat >/dev/null; kill -INT $pid; wait $pid'
    # The role that owns the cluster.
    OWNER = "leasehold"

    # @return [PostgresCluster] the cluster of this process
    def self.instance
      @instance ||= new.start.tap { |cluster| at_exit { cluster.clear } }
    end

    attr_reader :port

    def initialize
      raise "PostgreSQL is not in /usr/lib/postgresql" unless PROGRAMS

      @directory = Dir.mktmpdir("leasehold-postgres")
      File.chmod(0o755, @directory)
      @data = File.join(@directory, "data")
      @pid_of_maker = Process.pid
      @databases = 0
    end

    def start
      Dir.mkdir(@data)
      FileUtils.chown(USER, USER, @data) if root?
      initialise
      @port = TCPServer.open("127.0.0.1", 0) { |server| server.local_address.ip_port }
      run
      self
    end

    # Creates an empty database.
    #
    # @return [String] its name
    def create_database
      "cell_database_#{@databases += 1}".tap { |name| execute("postgres", "CREATE DATABASE #{name}") }
    end

    def url(database)
      "postgres://#{OWNER}@127.0.0.1:#{@port}/#{database}"
    end

    # Runs a statement over a new connection.
    #
    # @return [Array<Hash>] its rows
    def execute(database, sql)
      connection = PG.connect(url(database))
      connection.exec(sql).to_a
    ensure
      connection&.close
    end

    # @return [Array<String>] the start of a command that runs a program as a user that PostgreSQL and pgbouncer accept
    def as_user
      root? ? ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "--"] : []
    end

    def clear
      return unless Process.pid == @pid_of_maker

      @guard&.close
      Process.wait(@pid) if @pid
      FileUtils.rm_rf(@directory)
    end

    private

    def initialise
      output, status = Open3.capture2e(
        *as_user, File.join(PROGRAMS, "initdb"), "--no-sync", "--auth=trust", "--username=#{OWNER}",
        "--encoding=UTF8", "--locale=C", "-D", @data, chdir: "/"
      )
      raise "initdb failed: #{output}" unless status.success?
    end

    def run
      settings = ["port=#{@port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=50"]
      reader, @guard = IO.pipe
      @pid = spawn(
        "sh", "-c", WHILE_OPEN, "sh", *as_user, File.join(PROGRAMS, "postgres"), "-D", @data,
        *settings.flat_map { |setting| ["-c", setting] },
        in: reader, %i[out err] => File.join(@directory, "log"), chdir: "/"
      )
      reader.close
      Waiting.wait_for("PostgreSQL to start", seconds: 60) { answers? }
    end

    def answers?
      execute("postgres", "SELECT 1").any?
    rescue PG::Error
      false
    end

    def root?
      Process.uid.zero?
    end
  end
end
