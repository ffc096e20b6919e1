# frozen_string_literal: true

module Leasehold
  class Console
    # What somebody at a terminal is told of an error: what to do about it, and by which exit code scripts know it. The codes
    # are those of the project's command line.
    class Remedy
      # Of what is none of the others.
      OTHER = 1
      # A name or a setting is wrong.
      WRONG = 2
      # Try again.
      AGAIN = 4
      # The server is away.
      AWAY = 5
      # Somebody is not let in.
      NOT_ALLOWED = 6

      # By class, the more special ones first: the code, and what to do beyond what the message says.
      KNOWN = [
        [Models::Unknown, WRONG, nil],
        [Error::Misconfigured, WRONG, nil],
        [UnderWay, AGAIN, "run it again once that has ended"],
        [Left, AGAIN, "see that the claims server runs, and is at `%<address>s`; then run it again"],
        [Error::Unavailable, AWAY, "see that the claims server runs, and is at `%<address>s`; then run it again"],
        [Error::DeadlineExceeded, AGAIN, "run it again; if the server at `%<address>s` is always so slow, see what keeps it busy"],
        [Error::Temporary, AGAIN, "run it again"],
        [Error::Unauthenticated, NOT_ALLOWED, "see that `tls` names the certificate of cell %<cell_id>s"],
        [Error::Denied, NOT_ALLOWED, "see that `tls` names the certificate of cell %<cell_id>s, and `cell_id` is right"],
        [Error, OTHER, nil],
        [ActiveRecord::ConnectionNotEstablished, OTHER, "see that the database runs, and is where `config/database.yml` says"],
        [ActiveRecord::ActiveRecordError, OTHER,
         "see that the database answers, and that the migrations of `leasehold:install` are run (`bin/rails db:migrate`)"]
      ].freeze

      # @return [Remedy, nil] nil where the error is none that is expected
      def self.of(error)
        _, status, advice = KNOWN.find { |kind, _| kind === error }
        status && new(error, status, advice)
      end

      # @return [Integer] the exit code
      attr_reader :status

      def initialize(error, status, advice)
        @error = error
        @status = refused_by_tls? ? NOT_ALLOWED : status
        @advice = advice
      end

      # @return [String] what has failed, and what to do, in a line each
      def to_s
        [what, advice].compact.join("\n  ")
      end

      private

      def refused_by_tls?
        @error.is_a?(Error) && @error.code == "TLS_REFUSED"
      end

      def what
        telling = [Models::Unknown, UnderWay, Left].any? { |kind| @error.is_a?(kind) }
        telling ? @error.message : "#{@error.class}: #{@error.message.strip}"
      end

      def advice
        settings = Leasehold.configuration
        @advice && format(@advice, address: settings.address, cell_id: settings.cell_id)
      end
    end
  end
end
