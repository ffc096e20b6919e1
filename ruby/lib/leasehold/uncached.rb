# frozen_string_literal: true

module Leasehold
  # Reads rows as they are. Jobs and requests answer a query with what it answered before, of whichever database.
  module Uncached
    # @yield past the caches of all connections of this thread
    def self.run(&block)
      pools = ActiveRecord::Base.connection_handler.connection_pool_list
      pools = pools.select { |pool| pool.active_connection? || pool.query_cache_enabled }
      pools.inject(block) { |inner, pool| -> { pool.connection.uncached(&inner) } }.call
    end
  end
end
