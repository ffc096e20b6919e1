# frozen_string_literal: true

module Leasehold
  class Verifier
    # What a session asks to be read, of the server and of the table: once it asks, or ahead of that, while an update is begun.
    # Such an update is about claims of pages that are compared already, so it changes nothing of those to come. What others
    # change meanwhile is seen when the rows are read again under the lease of their own update.
    class Pages
      # So many at the most, since memory is to stay flat.
      AHEAD = 2

      # @param rows [Rows]
      # @yieldparam step [Verification::ListRecords]
      # @yieldreturn [RecordPage]
      def initialize(rows, &list)
        @rows = rows
        @list = list
        # By step, in the order in which they were read.
        @ahead = {}
      end

      # @param step [Verification::FindBound, Verification::ListRecords, Verification::ReadRows]
      # @return [Object] what came of it
      def answer(step)
        answer = taken(step) { read(step) }
        note(step, answer)
        answer
      end

      # Reads what will be asked for next, for as long as the block says so.
      def read_ahead
        find = @next
        AHEAD.times do
          break unless find && yield

          find = following(find, keep(find).tap { |bound| keep_page(find.after, bound) })
        end
      rescue StandardError
        # It is told if it lasts until the page is asked for.
        nil
      end

      private

      # What was read ahead. Where it does not serve, neither does what was read after it, lest rows be older than the server's
      # records of them.
      def taken(step)
        return @ahead.delete(step) if @ahead.key?(step)

        @ahead.clear
        yield
      end

      # Where the page after this one will begin, unless the server cuts this one short.
      def note(step, answer)
        case step
        when Verification::FindBound then @next = following(step, answer)
        when Verification::ReadRows then @next = nil unless step.upto == @next&.after
        end
      end

      def following(find, bound)
        bound && Verification::FindBound.new(bound, find.rows)
      end

      def keep_page(after, upto)
        keep(Verification::ListRecords.new(after, upto))
        keep(Verification::ReadRows.new(after, upto))
      end

      def keep(step)
        @ahead.fetch(step) { @ahead[step] = read(step) }
      end

      def read(step)
        case step
        when Verification::FindBound then @rows.bound(step.after, step.rows)
        when Verification::ListRecords then @list.call(step)
        when Verification::ReadRows then @rows.read(step.after, step.upto)
        end
      end
    end
  end
end
