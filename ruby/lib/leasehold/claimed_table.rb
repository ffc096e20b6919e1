# frozen_string_literal: true

module Leasehold
  # What the claims of all rows of a model share: looked up once, since every save asks for it.
  class ClaimedTable
    # The number of the contract for a table's name.
    #
    # @raise [Error::Misconfigured] it has none
    def self.source_type(name)
      Cells::Claimable::CLAIMS_SOURCE_TYPE.resolve(:"RAILS_TABLE_#{name.upcase}") || raise(
        Error::Misconfigured, "the contract has no source type for `#{name}`: say `source_type:` in `cells_claims_metadata`"
      )
    end

    attr_reader :subject_type, :subject_key, :source_type, :source_key, :primary_key

    # @param model [Class]
    # @param told [Hash] what `cells_claims_metadata` was told
    # @param columns [Hash] the table's, as ActiveRecord keeps them
    # @raise [Error::Misconfigured] the contract has no number for the table
    def initialize(model, told, columns)
      @told = told
      @columns = columns
      @subject_type, @subject_key = told.fetch_values(:subject_type, :subject_key)
      @source_type = model.cells_claims_source_type
      @source_key = SourceKey.new(model)
      @primary_key = model.primary_key
    end

    # Whether it is still what the model and its table say.
    def of?(told, columns)
      @told.equal?(told) && @columns.equal?(columns)
    end

    # Whether the subject's id is a column of the table.
    def subject_column?
      @columns.key?(@subject_key)
    end
  end
end
