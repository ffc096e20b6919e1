# frozen_string_literal: true

module Leasehold
  # The settings of a model from which the claims of all its rows are built: the types and keys of subject and
  # source, and the primary key. A model keeps one instance, because every save needs it, and builds a new one
  # when its settings or columns change.
  class ClaimedTable
    # @return [Integer] the contract's source type for a table's name
    # @raise [Error::Misconfigured] if the contract has none
    def self.source_type(name)
      Cells::Claimable::CLAIMS_SOURCE_TYPE.resolve(:"RAILS_TABLE_#{name.upcase}") || raise(
        Error::Misconfigured,
        "the contract has no source type for the table `#{name}`: pass `source_type:` to `cells_claims_metadata`, one of " \
        "#{Enumeration.names(Cells::Claimable::CLAIMS_SOURCE_TYPE)}, or for a table of your own a number from 1001 on"
      )
    end

    attr_reader :subject_type, :subject_key, :source_type, :source_key, :primary_key

    # @param model [Class]
    # @param settings [Hash] the arguments of `cells_claims_metadata`
    # @param columns [Hash] the `columns_hash` of the model
    # @raise [Error::Misconfigured] if the contract has no source type for the table
    def initialize(model, settings, columns)
      @settings = settings
      @columns = columns
      @subject_type = settings.fetch(:subject_type)
      @subject_key = model.cells_claims_subject_key
      @source_type = model.cells_claims_source_type
      @source_key = SourceKey.new(model)
      @primary_key = model.primary_key
    end

    # Returns true if the model's settings and columns are still the same objects. ActiveRecord builds a new
    # `columns_hash` after `reset_column_information` (activerecord 6.1.7.10, model_schema.rb:391).
    def current?(settings, columns)
      @settings.equal?(settings) && @columns.equal?(columns)
    end

    # Returns true if the subject's id is a column of the table.
    def subject_column?
      @subject_key.is_a?(Symbol) && @columns.key?(@subject_key.to_s)
    end
  end
end
