# frozen_string_literal: true

module Leasehold
  # Disables the query caches: a repeated query would return stale rows.
  module Uncached
    # Runs the block without the query caches of this thread's connections.
    def self.run(&block)
      pools = ActiveRecord::Base.connection_handler.connection_pool_list
      pools = pools.select { |pool| ActiveRecordCompat.query_cache?(pool) }
      pools.inject(block) { |inner, pool| -> { ActiveRecordCompat.without_query_cache(pool, &inner) } }.call
    end
  end
end
