# frozen_string_literal: true

require "socket"

module Support
  # A proxy between client and server that can cut or delay the server's answers.
  class TcpProxy
    def self.run(server_address)
      proxy = new(server_address)
      yield proxy
    ensure
      proxy&.close
    end

    attr_reader :address

    # @return [Integer] number of bytes that clients have sent
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

    # At the server's next answer, calls the block and then cuts the connection without forwarding
    # the answer.
    def cut_next_answer(&before)
      @lock.synchronize { @cut = before }
    end

    # Holds back all answers of the server.
    def hold_answers
      @lock.synchronize { @held = [] }
    end

    # Forwards the held answers and all later ones.
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
      # The listener was closed.
    end

    def pump(source, target)
      loop { break unless yield source.readpartial(65_536) }
    rescue IOError, SystemCallError
      # One side closed the connection, so the other side is closed too.
    ensure
      [source, target].each(&:close)
    end

    def from_client(bytes, server)
      # Counts the bytes before it forwards them: an observer of the server's reaction then finds them
      # counted.
      @lock.synchronize { @client_bytes += bytes.bytesize }
      server.write(bytes)
    end

    # @return [Boolean] true to keep the connection
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
