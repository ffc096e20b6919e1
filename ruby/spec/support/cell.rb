# frozen_string_literal: true

module Support
  # A cell: the Rails application with databases of its own. This process is one cell at a time; other
  # processes can be other cells.
  class Cell
    attr_reader :id, :database, :keys_database

    # @return [Cell] the cell with this id, created at first use
    def self.[](id)
      (@cells ||= {})[id] ||= new(id)
    end

    def initialize(id)
      @id = id
      @database = PostgresCluster.instance.create_database
      @keys_database = PostgresCluster.instance.create_database
    end

    # Turns this process into the cell.
    #
    # @param empty [Boolean] true to truncate its tables
    def become(server_address, empty: false)
      ENV["RAILS_APP_DATABASE_URL"] = PostgresCluster.instance.url(@database)
      ENV["RAILS_APP_KEYS_DATABASE_URL"] = PostgresCluster.instance.url(@keys_database)
      require_relative "../rails_app/config/environment"
      require_relative "../rails_app/db/tables"
      connect
      create_tables
      truncate if empty
      configure(server_address)
    end

    def configure(server_address)
      Leasehold.configure do |config|
        config.address = server_address
        config.cell_id = @id
        config.tls = { insecure: true }
        # Allows a run to destroy all claims: most examples have few rows, so the claims of one row are a
        # large share.
        config.verification_max_destroy_share = 1
      end
    end

    # @return [Hash{String => String}] the environment for another process of the cell
    def environment(server_address)
      { "RAILS_APP_DATABASE_URL" => PostgresCluster.instance.url(@database),
        "RAILS_APP_KEYS_DATABASE_URL" => PostgresCluster.instance.url(@keys_database),
        "LEASEHOLD_ADDRESS" => server_address, "LEASEHOLD_CELL_ID" => @id.to_s }
    end

    # Runs a statement without ActiveRecord.
    #
    # @return [Array<Hash>] its rows
    def query(sql)
      PostgresCluster.instance.execute(@database, sql)
    end

    private

    def connect
      ActiveRecord::Base.establish_connection(PostgresCluster.instance.url(@database))
      KeysRecord.establish_connection(PostgresCluster.instance.url(@keys_database))
    end

    def create_tables
      return if @tables_created

      RailsApp::Tables.create
      [User, Email, Route, Key].each(&:reset_column_information)
      # User ids are claimed too, so the cells' sequences must not overlap.
      ActiveRecord::Base.connection.execute("ALTER SEQUENCE users_id_seq RESTART WITH #{@id}000000")
      @tables_created = true
    end

    def truncate
      gem_tables = "cells_outstanding_leases, cells_claims_verifications"
      ActiveRecord::Base.connection.execute("TRUNCATE users, emails, routes, #{gem_tables}")
      KeysRecord.connection.execute("TRUNCATE keys, #{gem_tables}")
    end
  end
end
