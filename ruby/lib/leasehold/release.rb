# frozen_string_literal: true

require "leasehold/rails"

module Leasehold
  # Gives up this cell's claims of an attribute's bucket types, for all rows of the model's table. Other
  # attributes and STI classes with these types lose their claims too, so the flags of all of them must be
  # off. Verification keeps the claims of an attribute whose flag is off (V11).
  class Release
    # Raised if the commit guard refused an update, because its lease was too old (R04). Its claims are kept.
    TooLate = Class.new(StandardError)

    # @param name [Symbol, String] the attribute
    # @raise [Models::Unknown] if the model does not claim the attribute
    def initialize(model, name, client: Leasehold.client)
      @model = model
      @name = Models.attribute_name(model, name)
      @client = client
    end

    # Returns the number of claims that {#run} would give up.
    #
    # @raise [Error::Misconfigured] if saves still claim the bucket type
    # @return [Integer]
    def count
      check
      count_claims
    end

    # Gives up the claims. While a class of the table (STI) is verified, nothing is given up: that run may have
    # begun before the flags were switched off, and would claim the values again.
    #
    # @raise [Error::Misconfigured] if saves still claim the bucket type
    # @raise [Error::Busy] if some claims are under another lease; all others are given up
    # @raise [TooLate] if the commit guard refused an update
    # @return [Integer, nil] the number of claims that were given up; nil if a verification of the table is in progress
    def run
      check
      ActiveRecordCompat.with_connection(@model.connection_pool) do |connection|
        Verifier::Progress.new(@model, connection).exclusively(whole_table: true) { release(connection) }
      end
    end

    private

    # Refuses the release while saves still claim the bucket type: they would claim the values again. The release
    # lists claims by source type, so it also gives up those of other classes of the table (STI).
    def check
      claiming = Models.sharing_table(@model).index_with { |model| enabled(model) }.select { |_, attributes| attributes.any? }
      return if claiming.empty?

      names = claiming.keys.map { |model| "`#{model.name}`" }.join(", ")
      raise Error::Misconfigured,
            "saves of #{names} claim the bucket type of `#{@name}`: #{remedy(claiming.values.flatten)} first"
    end

    # @return [Integer] the number of the attribute's claims that the server has
    def count_claims
      total = 0
      each_page { |claims| total += claims.size }
      total
    end

    # @return [Array<ClaimedAttribute>] the attributes that saves of the model still claim, and whose claims the
    #   release would give up
    def enabled(model)
      source_type = @model.cells_claims_source_type
      model.cells_claims_enabled.select { |attribute| types.include?(attribute.type) && model.cells_claims_source_type == source_type }
    end

    # @param enabled [Array<ClaimedAttribute>]
    def remedy(enabled)
      without_flag = enabled.find { |attribute| attribute.feature_flag.nil? }
      return "give `#{without_flag.name}` a `feature_flag:` that is off" if without_flag

      "switch off #{enabled.map { |attribute| "`#{attribute.feature_flag}`" }.uniq.join(', ')}"
    end

    def types
      claiming = Models.of_table(@model).filter_map { |claimable| claimable.cells_claims_declarations[@name] }
      claiming.map(&:type).uniq
    end

    # Gives up the claims page by page. The next page begins after the last source id of the listed page, so
    # claims that could not be given up are not listed again.
    #
    # @raise [Error::Busy] after the last page, if claims of some page are under another lease
    # @return [Integer] the number of claims that were given up
    def release(connection)
      before = count_claims
      busy = nil
      each_page do |claims|
        give_up(connection, claims)
      rescue Error::Busy => error
        busy = error
      end
      raise busy if busy

      before - count_claims
    end

    def give_up(connection, claims)
      BulkUpdate.new(connection: connection, key: SecureRandom.uuid, creates: [], destroys: claims, client: @client).run
    rescue ActiveRecord::SerializationFailure
      raise TooLate, "an update of the claims of `#{@name}` took longer than the commit guard allows, and was rolled back"
    end

    # @yieldparam claims [Array<Claim>]
    def each_page
      after = nil
      loop do
        page = list(after)
        claims = page.records.map(&:claim)
        yield claims if claims.any?
        break unless page.truncated?

        after = claims.last.source_id
      end
    end

    def list(after)
      @client.list_records(
        source_type: @model.cells_claims_source_type, bucket_types: types, after: after,
        deadline_seconds: Leasehold.configuration.verification_deadline_seconds
      )
    end
  end
end
