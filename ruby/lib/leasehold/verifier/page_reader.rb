# frozen_string_literal: true

module Leasehold
  class Verifier
    # Reads the pages that a session requests from the server and from the table. It also prefetches the next
    # pages while a correction is begun.
    #
    # Prefetching is safe: a correction concerns only pages that are compared already, so it changes nothing
    # in the pages that follow. Changes by others after the prefetch are seen when the rows are read again
    # under the lease of their own correction (V03).
    class PageReader
      # Maximum number of pages prefetched, which bounds the memory of a run.
      PREFETCH_PAGES = 2

      # The result of a step, and the monotonic time, in seconds, at which its reading began.
      Reading = Struct.new(:result, :started_at)

      # @param rows [RowReader]
      # @yieldparam step [Verification::ListRecords]
      # @yieldreturn [RecordPage]
      def initialize(rows, &list)
        @rows = rows
        @list = list
        # Readings by step, in the order in which they were made.
        @prefetched = {}
      end

      # @param step [Verification::FindBound, Verification::ListRecords, Verification::ReadRows]
      # @return [Object] the result to feed to the session
      def fetch(step)
        reading = take_prefetched(step) { read(step, @listing) }
        @listing = reading if step.is_a?(Verification::ListRecords)
        plan_next(step, reading.result)
        reading.result
      end

      # Prefetches the next pages while the block returns true.
      def read_ahead
        find = @next
        PREFETCH_PAGES.times do
          break unless find && yield

          find = following(find, prefetch(find).result.tap { |bound| prefetch_page(find.after, bound) })
        end
      rescue StandardError
        # A lasting error is raised again when the session requests the page.
        nil
      end

      private

      # Takes the step's prefetched result, or calls the block. A step that was not prefetched discards all
      # prefetched results: rows of a page must not be older than the server's records of that page. If a row
      # and its claim were destroyed in between, the claim would look missing and be created again.
      def take_prefetched(step)
        return @prefetched.delete(step) if @prefetched.key?(step)

        @prefetched.clear
        yield
      end

      # Remembers the step that starts the next page. If the server truncates a page's records, the page ends
      # earlier than planned. The start of the next page is then unknown, so nothing is prefetched.
      def plan_next(step, result)
        case step
        when Verification::FindBound then @next = following(step, result)
        when Verification::ReadRows then @next = nil unless step.upto == @next&.after
        end
      end

      def following(find, bound)
        bound && Verification::FindBound.new(bound, find.rows)
      end

      # Prefetches a page: its records, then its rows, in the order in which the session requests them.
      def prefetch_page(after, upto)
        listing = prefetch(Verification::ListRecords.new(after, upto))
        prefetch(Verification::ReadRows.new(after, upto), listing)
      end

      def prefetch(step, listing = nil)
        @prefetched.fetch(step) { @prefetched[step] = read(step, listing) }
      end

      # @param listing [Reading, nil] of the page's records, for {Verification::ReadRows}
      def read(step, listing)
        started_at = Verifier.now
        result = case step
                 when Verification::FindBound then @rows.bound(step.after, step.rows)
                 when Verification::ListRecords then @list.call(step)
                 when Verification::ReadRows
                   @rows.read(step.after, step.upto, listing.result, seconds_since_listing: started_at - listing.started_at)
                 end
        Reading.new(result, started_at)
      end
    end
  end
end
