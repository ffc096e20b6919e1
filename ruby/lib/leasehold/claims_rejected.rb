# frozen_string_literal: true

module Leasehold
  # The claims of a transaction were refused, or nobody answered in time; the transaction was rolled back. The records
  # concerned say why in their `errors`.
  class ClaimsRejected < ActiveRecord::RecordInvalid
    # What the reason of one claim reads as, in the words of Rails where it has them.
    KINDS = { "CLAIM_TAKEN" => :taken, "CLAIM_BUSY" => :busy, "VALUE_NOT_ALLOWED" => :invalid }.freeze

    # @return [Array<ActiveRecord::Base>] the records that say why
    attr_reader :records
    # @return [Error] what the client was told
    attr_reader :error

    class << self
      # What to raise for an error of a begin: itself, where no user of a record can do anything about it.
      #
      # @param effect [Transactions::NetEffect] what was to be begun
      def or_same(error, effect)
        blamed = error.rejected.filter_map { |claim| blame(claim, effect) }
        blamed = [blame_all(effect)] if blamed.empty? && error.temporary?
        blamed.empty? ? in_words_of_model(error, effect) : new(blamed.uniq(&:__id__), error)
      end

      private

      def blame(claim, effect)
        kind = kind(claim, effect) or return
        change = effect.change(claim)
        name = change.attribute.name
        errors = change.record.errors
        errors.add(name, kind, value: change.record[name]) unless errors.of_kind?(name, kind)
        change.record
      end

      # Keys of integers and UUIDs fit; of texts the server says how long they may be, and where on the wire.
      def in_words_of_model(error, effect)
        return error unless error.metadata["limit"] == "source_id_bytes" && error.rejected.any?

        change = effect.change(error.rejected.first)
        model = change.record.class
        actual, max = error.metadata.values_at("actual", "max")
        Error::Invalid.new(
          "`#{model.name}##{model.primary_key}` is #{actual} bytes long: `#{change.attribute.name}` is claimed for keys of " \
          "#{max} bytes at most", code: error.code, rejected: error.rejected, metadata: error.metadata
        )
      end

      # Of two records that claim one bucket in one transaction the second comes too late.
      def kind(claim, effect)
        KINDS.fetch(claim.code) { :taken if effect.repeated?(claim) }
      end

      def blame_all(effect)
        effect.records.first.tap { |record| record.errors.add(:base, :claims_unavailable) }
      end
    end

    def initialize(records, error)
      @records = records
      @error = error
      super(records.first)
    end

    # Whether the same save can succeed later without anybody's decision.
    def temporary?
      error.temporary?
    end

    # The same for a record that was saved together with those refused: its errors name the associations that lead there.
    def seen_from(saved)
      others = records.reject { |other| other.equal?(saved) }
      return self if others.empty?

      paths = AssociationPath.new(saved)
      others.each { |other| other.errors.each { |one| import(saved, one, paths.to(other)) } }
      self.class.new([saved, *others], error)
    end

    private

    def import(saved, error, path)
      # It is about no record in particular.
      return saved.errors.add(:base, error.type) if error.type == :claims_unavailable

      path ? saved.errors.import(error, attribute: "#{path}.#{error.attribute}") : tell(saved, error)
    end

    # A record that a callback has saved: no attribute leads to it, so the words have to name its own.
    def tell(saved, error)
      saved.errors.add(:base, error.type, **error.options, message: error.full_message)
    end
  end
end
