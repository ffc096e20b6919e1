# frozen_string_literal: true

require "active_record"
require_relative "../cells/transaction_record"

module Leasehold
  # Raised if the claims of a transaction were refused, or no answer came in time. The transaction was
  # rolled back, and the `errors` of the records list the reasons.
  class ClaimsRejected < ActiveRecord::RecordInvalid
    include Cells::TransactionRecord::Error

    # Types of validation errors by the code of a rejected claim. `:taken` and `:invalid` are Rails' own.
    ERROR_TYPES = { "CLAIM_TAKEN" => :taken, "CLAIM_BUSY" => :busy, "VALUE_NOT_ALLOWED" => :invalid }.freeze

    # @return [Array<ActiveRecord::Base>] the records whose `errors` list the reasons
    attr_reader :records
    # @return [Error] the client's error
    attr_reader :error

    class << self
      # Converts the error of a begin to the exception to raise, and adds it to the records' `errors`. Returns
      # the client's error itself if it has no place in the `errors` of a record.
      #
      # @param effect [Transactions::NetEffect] the creates and destroys of the begin
      # @return [ClaimsRejected, Error]
      def from(error, effect)
        records = error.rejected.filter_map { |rejected| add_error(rejected, effect) }
        records = [add_base_error(effect)] if records.empty? && error.temporary?
        return with_model_names(error, effect) if records.empty?

        rejection_class(error, effect).new(records.uniq(&:__id__), error)
      end

      private

      def rejection_class(error, effect)
        return ClaimsUnavailable if error.temporary?

        error.rejected.any? { |rejected| error_type(rejected, effect) == :taken } ? ClaimsTaken : ClaimsRejected
      end

      # @return [ActiveRecord::Base, nil] the record with the error added; nil for a code without a type
      def add_error(rejected, effect)
        type = error_type(rejected, effect) or return
        change = effect.change_for(rejected)
        if type == :taken && Leasehold.configuration.taken_errors_on == :base
          return change.record.tap { |record| record.send(:cells_claims_add_taken_error) }
        end

        name = change.attribute.name
        errors = change.record.errors
        errors.add(name, type, value: change.record[name]) unless errors.of_kind?(name, type)
        change.record
      end

      # Replaces the message if a primary key is too long. The server's message names the key by its place in
      # the request; the new message names the model and its column. Only text keys can be too long.
      def with_model_names(error, effect)
        return error unless error.metadata["limit"] == "source_id_bytes" && error.rejected.any?

        change = effect.change_for(error.rejected.first)
        model = change.record.class
        actual, max = error.metadata.values_at("actual", "max")
        Error::Invalid.new(
          "`#{model.name}##{model.primary_key}` is #{actual} bytes long: `#{change.attribute.name}` can only be claimed for " \
          "keys of at most #{max} bytes", code: error.code, rejected: error.rejected, metadata: error.metadata
        )
      end

      # Returns the type of the validation error; nil if the code has none. If two records of a transaction
      # claim one bucket, the value of the second one is `:taken`.
      def error_type(rejected, effect)
        ERROR_TYPES.fetch(rejected.code) { :taken if effect.duplicate?(rejected) }
      end

      def add_base_error(effect)
        effect.records.first.tap { |record| record.errors.add(:base, :claims_unavailable) }
      end
    end

    def initialize(records, error)
      @records = records
      @error = error
      super(records.first)
    end

    # Returns true if the same save can succeed later without a change of its values.
    def temporary?
      error.temporary?
    end

    # Copies the errors of other records of the transaction to the record whose `save` or `destroy` was called.
    # An attribute is prefixed with the associations that lead to its record.
    #
    # @param saved [ActiveRecord::Base] the record whose `save` or `destroy` was called
    # @return [ClaimsRejected]
    def reported_on(saved)
      others = records.reject { |record| record.equal?(saved) }
      return self if others.empty?

      paths = AssociationPath.new(saved)
      others.each { |other| other.errors.each { |error| import(saved, error, paths.to(other)) } }
      self.class.new([saved, *others], error)
    end

    private

    def import(saved, error, path)
      # An error on `:base` concerns the whole save, not the record that has this error.
      return saved.errors.add(:base, error.type, **error.options) if error.attribute == :base

      path ? saved.errors.import(error, attribute: "#{path}.#{error.attribute}") : add_full_message(saved, error)
    end

    # Adds the error of a record that a callback saved. No association leads to it, so the message must name
    # its attribute.
    def add_full_message(saved, error)
      saved.errors.add(:base, error.type, **error.options, message: error.full_message)
    end
  end

  # Raised if a claimed value is taken, by another row or cell.
  class ClaimsTaken < ClaimsRejected
    include Cells::TransactionRecord::AlreadyClaimedError
  end

  # Raised if the same save can succeed later without a change: no answer came in time, the server is
  # unreachable or overloaded, or a claim is under another lease. Rails answers a request that ends with this
  # error with status 503.
  class ClaimsUnavailable < ClaimsRejected
    # @return [Integer] seconds after which to try again, for a `Retry-After` header
    def retry_after
      [error.retry_after_seconds.to_f.ceil, 1].max
    end
  end
end
