# frozen_string_literal: true

require "socket"

module Support
  # Stands between client and server, and loses or holds back what the server says.
  class TcpProxy
    def self.run(server_address)
      proxy = new(server_address)
      yield proxy
    ensure
      proxy&.close
    end

    attr_reader :address

    # @return [Integer] bytes that clients have sent so far
    attr_reader :client_bytes

    def initialize(server_address)
      @server_host, @server_port = server_address.split(":")
      @listener = TCPServer.new("127.0.0.1", 0)
      @address = "127.0.0.1:#{@listener.local_address.ip_port}"
      @lock = Mutex.new
      @held = nil
      @cut = nil
      @client_bytes = 0
      @threads = [Thread.new { accept }]
    end

    # When the server says something next, runs the block, then cuts that connection without passing anything on.
    def cut_next_answer(&before)
      @lock.synchronize { @cut = before }
    end

    # Keeps back whatever the server says from now on.
    def hold_answers
      @lock.synchronize { @held = [] }
    end

    # Passes on what was kept back, and all that follows.
    def release_answers
      @lock.synchronize do
        @held&.each { |socket, bytes| socket.write(bytes) }
        @held = nil
      end
    end

    def close
      @listener.close
      @threads.each(&:kill).each(&:join)
    end

    private

    def accept
      loop do
        client = @listener.accept
        server = TCPSocket.new(@server_host, @server_port)
        @threads << Thread.new { pump(client, server) { |bytes| from_client(bytes, server) } }
        @threads << Thread.new { pump(server, client) { |bytes| from_server(bytes, client) } }
      rescue SystemCallError
        client&.close
      end
    rescue IOError
      # Closed.
    end

    def pump(source, target)
      loop { break unless yield source.readpartial(65_536) }
    rescue IOError, SystemCallError
      # One of them has gone; the other goes too.
    ensure
      [source, target].each(&:close)
    end

    def from_client(bytes, server)
      # Counted first: who sees what the server makes of the bytes sees them counted.
      @lock.synchronize { @client_bytes += bytes.bytesize }
      server.write(bytes)
    end

    # Whether the connection goes on.
    def from_server(bytes, client)
      cut = @lock.synchronize { @cut.tap { @cut = nil } }
      if cut
        cut.call
        return false
      end
      @lock.synchronize { @held ? @held << [client, bytes] : client.write(bytes) }
      true
    end
  end
end
