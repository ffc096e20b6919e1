# frozen_string_literal: true

module Leasehold
  # Disables the query caches. Rails enables them for each request and job, for the pools of all
  # databases (activerecord 6.1.7.10, query_cache.rb:28); a repeated query would return stale rows.
  module Uncached
    # Runs the block without the query caches of this thread's connections.
    def self.run(&block)
      pools = ActiveRecord::Base.connection_handler.connection_pool_list
      pools = pools.select { |pool| pool.active_connection? || pool.query_cache_enabled }
      pools.inject(block) { |inner, pool| -> { pool.connection.uncached(&inner) } }.call
    end
  end
end
