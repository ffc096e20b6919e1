# frozen_string_literal: true

module Support
  # A cell: the Rails application on databases of its own. This process can be one at a time, and others run beside it.
  class Cell
    attr_reader :id, :database, :keys_database

    # The cells of this process, made with the first use.
    def self.[](id)
      (@cells ||= {})[id] ||= new(id)
    end

    def initialize(id)
      @id = id
      @database = PostgresCluster.instance.create_database
      @keys_database = PostgresCluster.instance.create_database
    end

    # Makes this process the cell, and empties its databases.
    def become(server_address, empty: false)
      ENV["RAILS_APP_DATABASE_URL"] = PostgresCluster.instance.url(@database)
      ENV["RAILS_APP_KEYS_DATABASE_URL"] = PostgresCluster.instance.url(@keys_database)
      require_relative "../rails_app/config/environment"
      require_relative "../rails_app/db/tables"
      connect
      make_tables
      truncate if empty
      configure(server_address)
    end

    def configure(server_address)
      Leasehold.configure do |config|
        config.address = server_address
        config.cell_id = @id
        config.tls = { insecure: true }
      end
    end

    # What another process has to know to be the cell.
    def environment(server_address)
      { "RAILS_APP_DATABASE_URL" => PostgresCluster.instance.url(@database),
        "RAILS_APP_KEYS_DATABASE_URL" => PostgresCluster.instance.url(@keys_database),
        "LEASEHOLD_ADDRESS" => server_address, "LEASEHOLD_CELL_ID" => @id.to_s }
    end

    # Rows of the database, past ActiveRecord.
    def query(sql)
      PostgresCluster.instance.execute(@database, sql)
    end

    private

    def connect
      ActiveRecord::Base.establish_connection(PostgresCluster.instance.url(@database))
      KeysRecord.establish_connection(PostgresCluster.instance.url(@keys_database))
    end

    def make_tables
      return if @made

      RailsApp::Tables.create
      [User, Email, Route, Key].each(&:reset_column_information)
      # Ids are claimed, too, so the cells' sequences are apart.
      ActiveRecord::Base.connection.execute("ALTER SEQUENCE users_id_seq RESTART WITH #{@id}000000")
      @made = true
    end

    def truncate
      own = "cells_outstanding_leases, cells_claims_verifications"
      ActiveRecord::Base.connection.execute("TRUNCATE users, emails, routes, #{own}")
      KeysRecord.connection.execute("TRUNCATE keys, #{own}")
    end
  end
end
