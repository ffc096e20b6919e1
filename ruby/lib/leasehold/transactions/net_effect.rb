# frozen_string_literal: true

module Leasehold
  module Transactions
    # The net creates and destroys of a list of changes. For each row and attribute, the claim before the first
    # change is compared with the claim after the last. If the value stays while its subject or spelling
    # changes, it is in both lists, and the engine treats it as a replace (B06).
    class NetEffect
      # A claim to create or destroy, and the last change that led to it.
      Entry = Struct.new(:claim, :change)

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

      # @return [Array<Array(Integer, String)>] the buckets of all creates and destroys
      def buckets
        (creates + destroys).map(&:bucket)
      end

      def empty?
        @creates.empty? && @destroys.empty?
      end

      # @return [Array<ActiveRecord::Base>] the instances that the claims come from, each once
      def records
        (@creates + @destroys).map { |entry| entry.change.record }.uniq(&:__id__)
      end

      # @param rejected [RejectedClaim]
      # @return [Change] the change behind the rejected claim
      def change_for(rejected)
        entries(rejected.list).fetch(rejected.position).change
      end

      # Returns true if an earlier create of the same update has the bucket of the rejected one (B07).
      #
      # @param rejected [RejectedClaim]
      def duplicate?(rejected)
        return false unless rejected.list == :create

        *earlier, bucket = creates.first(rejected.position + 1).map(&:bucket)
        earlier.include?(bucket)
      end

      # @param positions [Array<Integer>] of destroys
      # @return [NetEffect] the effect without these destroys
      def without_destroys(positions)
        dup.tap { |effect| effect.drop_destroys(positions) }
      end

      # Divides the effect into parts of at most this many claims. Claims of one bucket stay together: they are
      # a replace (B06), or a duplicate that the server must see (B07).
      #
      # @param max [Integer]
      # @return [Array<NetEffect>]
      def parts(max)
        chunks = [[]]
        (@creates + @destroys).group_by { |entry| entry.claim.bucket }.each_value do |entries|
          chunks << [] if chunks.last.size + entries.size > max && chunks.last.any?
          chunks.last.concat(entries)
        end
        chunks.map { |entries| dup.tap { |part| part.keep(Set.new.compare_by_identity.merge(entries)) } }
      end

      # Turns creates that were rejected as taken into replaces, if the row itself may own the claim. A row owns
      # it already if it was renamed without callbacks and now gets its old name back. The engine still refuses
      # the replace if another cell or another row owns the claim (B05, B06).
      #
      # @param error [Error] the refusal of this effect
      # @return [NetEffect, nil] nil if the refusal has another cause
      def replacing_own_claims(error)
        gone, rest = error.rejected.partition { |rejected| LeaseBegin.already_gone?(rejected) }
        return unless rest.any? && rest.all? { |rejected| replaceable?(rejected) }

        entries = rest.map { |rejected| @creates.fetch(rejected.position) }
        return if entries.any? { |entry| claimed_by_other_attribute?(entry) }

        without_destroys(gone.map(&:position)).tap { |effect| effect.add_destroys(entries) }
      end

      # @param covered [NetEffect] the part that a lease already covers
      # @raise [Error::Internal] if the lease covers a change that did not happen
      # @return [NetEffect] the rest, which still needs a lease
      def minus(covered)
        unless (covered.creates - creates).empty? && (covered.destroys - destroys).empty?
          raise Error::Internal.new(
            "a callback or another transaction changed a claim that the early lease covers: begin the lease " \
            "within the transaction, with `save` instead of `Leasehold.claiming`", code: "NOT_COVERED"
          )
        end

        dup.tap { |rest| rest.drop(covered) }
      end

      protected

      def keep(entries)
        @creates = @creates.select { |entry| entries.include?(entry) }
        @destroys = @destroys.select { |entry| entries.include?(entry) }
      end

      def drop(covered)
        @creates = @creates.reject { |entry| covered.creates.include?(entry.claim) }
        @destroys = @destroys.reject { |entry| covered.destroys.include?(entry.claim) }
      end

      def add_destroys(entries)
        @destroys += entries
      end

      def drop_destroys(positions)
        @destroys = @destroys.reject.with_index { |_, position| positions.include?(position) }
      end

      private

      def add(before, last)
        return if before == last.after

        @destroys << Entry.new(before, last) if before && valid_claim?(before)
        @creates << Entry.new(last.after, last) if last.after
      end

      # Returns true if the create was rejected as taken and the row may own the claim: a row that this
      # save inserted cannot.
      def replaceable?(rejected)
        return false unless rejected.list == :create && rejected.code == "CLAIM_TAKEN"

        change = change_for(rejected)
        change.before || (change.record.persisted? && !change.record.previously_new_record?)
      end

      # Returns true if another attribute of the row claims the same bucket. The claim is then taken by that
      # attribute and must not be replaced.
      def claimed_by_other_attribute?(entry)
        record, bucket = entry.change.record, entry.claim.bucket
        record.class.cells_claims_enabled.any? do |other|
          other.name != entry.change.attribute.name && other.type == entry.claim.bucket_type &&
            other.claims?(record) && other.claim(record)&.bucket == bucket
        end
      end

      # Returns true if the engine's rules allow the claim. A claim they forbid was never created, so it
      # needs no destroy: its row was written without validations.
      def valid_claim?(claim)
        Native.check_batch([], [claim])
        true
      rescue Error::Invalid, EncodingError
        false
      end

      def entries(list)
        list == :create ? @creates : @destroys
      end
    end
  end
end
