# frozen_string_literal: true

module Leasehold
  class Verifier
    # What a session asks to be read, of the server and of the table: once it asks, or ahead of that, while an update is under
    # way. Such an update is about claims of pages that are compared already, so it changes nothing of those to come; and
    # whatever does is told by the server, which makes and ends claims on conditions only.
    class Pages
      # So many at the most, since memory is to stay flat.
      AHEAD = 2
      # What was read earlier is read anew: rows go on changing, and claims should be made for what they are.
      MAX_AGE_SECONDS = 1

      # @param rows [Rows]
      # @yieldparam step [Verification::ListRecords]
      # @yieldreturn [RecordPage]
      def initialize(rows, &list)
        @rows = rows
        @list = list
        # By step, in the order in which they were read: the answer, and when it was asked for.
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
      end

      private

      # What was read ahead. Where it does not serve, neither does what was read after it, lest rows be older than the server's
      # records of them.
      def taken(step)
        answer, asked_at = @ahead.delete(step)
        return answer if asked_at && Verifier.now - asked_at <= MAX_AGE_SECONDS

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
        answer, = @ahead[step] ||= [Verifier.now, read(step)].reverse
        answer
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
