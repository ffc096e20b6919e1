# frozen_string_literal: true

module Leasehold
  class Client
    # The store that the setting `store_id` names. Without it, every store is expected.
    class ExpectedStore
      # @param id [String, nil] the id of the expected store; nil for any
      def initialize(id)
        @id = id&.downcase
      end

      # Returns the metadata by which a server with another store refuses the request.
      #
      # @return [Hash]
      def metadata
        @id ? { STORE_ID => @id } : {}
      end

      # Checks the metadata of a successful call.
      #
      # @raise [Error::OtherStore] if the server has another store, or does not tell its store
      # @return [void]
      def check(metadata)
        raise other(metadata[STORE_ID]) if @id && metadata[STORE_ID] != @id
      end

      # Returns the error for a failed call if its answer names another store. Returns nil if the answer names
      # the expected store, or none: a proxy may have answered.
      #
      # @return [Error::OtherStore, nil]
      def mismatch(metadata)
        found = metadata[STORE_ID]
        other(found) if @id && found && found != @id
      end

      private

      def other(found)
        return Error::OtherStore.new("the server has the store #{found}, and `store_id` is #{@id}: check `address`") if found

        Error::OtherStore.new("the server does not tell its store, and `store_id` is #{@id}: run a server of at least this gem's version")
      end
    end
  end
end
