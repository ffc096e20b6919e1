# frozen_string_literal: true

module Leasehold
  module Transactions
    # What several changes come to, row by row: what was claimed before the first against what is after the last. A value
    # that stays while its subject or spelling changes is in both lists, which the engine takes for a replace.
    class NetEffect
      # A claim to create or destroy, and the change that it came from.
      Part = Struct.new(:claim, :change)

      # @param changes [Array<Change>] in the order in which they happened
      def initialize(changes)
        @creates = []
        @destroys = []
        changes.group_by(&:key).each_value { |chain| add(chain.first.before, chain.last) }
      end

      # @return [Array<Claim>]
      def creates
        @creates.map(&:claim)
      end

      # @return [Array<Claim>]
      def destroys
        @destroys.map(&:claim)
      end

      def empty?
        @creates.empty? && @destroys.empty?
      end

      # The records that claims come from.
      def records
        (@creates + @destroys).map { |part| part.change.record }.uniq(&:__id__)
      end

      # The change behind a claim that was refused.
      #
      # @param rejected [RejectedClaim]
      def change(rejected)
        list(rejected.list).fetch(rejected.position).change
      end

      # Whether a claim that was refused is for a bucket that an earlier one of the same update is to create (B07).
      #
      # @param rejected [RejectedClaim]
      def repeated?(rejected)
        return false unless rejected.list == :create

        *earlier, claim = creates.first(rejected.position + 1).map(&:bucket)
        earlier.include?(claim)
      end

      # Leaves out claims that were to be destroyed.
      #
      # @param positions [Array<Integer>]
      def without_destroys(positions)
        dup.tap { |rest| rest.drop_destroys(positions) }
      end

      # The same, where names are taken that the rows may hold themselves which are to have them: a row was written past its
      # callbacks, and gets its old name back. What is given up and claimed at once is a replace, which is refused where the
      # name is another's (B05, B06).
      #
      # @return [NetEffect, nil] nil where something else is in the way
      def retaken(error)
        gone, taken = error.rejected.partition { |claim| Update.gone?(claim) }
        return unless taken.any? && taken.all? { |claim| retakable?(claim) }

        parts = taken.map { |claim| @creates.fetch(claim.position) }
        return if parts.any? { |part| said_elsewhere?(part) }

        without_destroys(gone.map(&:position)).tap { |rest| rest.add_destroys(parts) }
      end

      # What is left to begin, where a lease has been begun for a part.
      #
      # @param begun [NetEffect]
      # @raise [Error::Internal] the lease covers what has not happened
      def without(begun)
        unless (begun.creates - creates).empty? && (begun.destroys - destroys).empty?
          raise Error::Internal.new(
            "a callback, or another transaction, has changed what the lease was begun for: begin it within the transaction",
            code: "NOT_COVERED"
          )
        end

        dup.tap { |rest| rest.drop(begun) }
      end

      protected

      def drop(begun)
        @creates = @creates.reject { |part| begun.creates.include?(part.claim) }
        @destroys = @destroys.reject { |part| begun.destroys.include?(part.claim) }
      end

      def add_destroys(parts)
        @destroys += parts
      end

      def drop_destroys(positions)
        @destroys = @destroys.reject.with_index { |_, position| positions.include?(position) }
      end

      private

      def add(before, last)
        return if before == last.after

        @destroys << Part.new(before, last) if before && claimable?(before)
        @creates << Part.new(last.after, last) if last.after
      end

      # Whether the name is taken, maybe by the very row: not by one that was just inserted.
      def retakable?(rejected)
        return false unless rejected.list == :create && rejected.code == "CLAIM_TAKEN"

        change = change(rejected)
        change.before || (change.record.persisted? && !change.record.previously_new_record?)
      end

      # Whether another attribute of the row says the same, so that what is taken is so by that.
      def said_elsewhere?(part)
        record, bucket = part.change.record, part.claim.bucket
        record.class.cells_claims_enabled.any? do |other|
          other.name != part.change.attribute.name && other.type == part.claim.bucket_type &&
            other.claims?(record) && other.claim(record)&.bucket == bucket
        end
      end

      # What the engine would not claim was never claimed, so there is nothing to give up: a row that came past the rules.
      def claimable?(claim)
        Native.check_batch([], [claim])
        true
      rescue Error::Invalid, EncodingError
        false
      end

      def list(name)
        name == :create ? @creates : @destroys
      end
    end
  end
end
