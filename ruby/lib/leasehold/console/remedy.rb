# frozen_string_literal: true

module Leasehold
  class Console
    # The text for an error at a terminal, with its remedy, and its exit code. The exit codes are
    # those of the project's command line.
    class Remedy
      # Any other failure.
      EXIT_OTHER = 1
      # A name or a setting is wrong.
      EXIT_USAGE = 2
      # A later try can succeed.
      EXIT_RETRY = 4
      # The server cannot be reached, or its store is down.
      EXIT_UNAVAILABLE = 5
      # The certificate of the caller or of the server was refused.
      EXIT_DENIED = 6

      # Exit code and advice by class of error. Subclasses come before their superclasses.
      KNOWN = [
        [Models::Unknown, EXIT_USAGE, nil],
        [Models::InvalidDeclaration, EXIT_USAGE, nil],
        [Error::Misconfigured, EXIT_USAGE, nil],
        [AlreadyRunning, EXIT_RETRY, "run the task again after that run has ended"],
        [Incomplete, EXIT_RETRY, "check that the claims server runs at `%<address>s`, then run the task again"],
        [Release::TooLate, EXIT_RETRY,
         "run the task again; if this persists, check the load of the server and of the database"],
        [Error::Unavailable, EXIT_UNAVAILABLE, "check that the claims server runs at `%<address>s`, then run the task again"],
        [Error::DeadlineExceeded, EXIT_RETRY,
         "run the task again; if this persists, check the load of the server at `%<address>s`"],
        [Error::Temporary, EXIT_RETRY, "run the task again"],
        [Error::Unauthenticated, EXIT_DENIED, "check that `tls` names the certificate of cell %<cell_id>s"],
        [Error::Denied, EXIT_DENIED, "check that `tls` names the certificate of cell %<cell_id>s, and that `cell_id` is right"],
        [Error, EXIT_OTHER, nil],
        [ActiveRecord::ConnectionNotEstablished, EXIT_OTHER,
         "check that the database runs at the address in `config/database.yml`"],
        [ActiveRecord::ActiveRecordError, EXIT_OTHER,
         "check that the database answers, and run the migration of `rails generate leasehold:install` (`bin/rails db:migrate`)"]
      ].freeze

      # @return [Remedy, nil] nil for an unexpected error
      def self.of(error)
        _, status, advice = KNOWN.find { |error_class, _| error_class === error }
        status && new(error, status, advice)
      end

      # @return [Integer] the exit code
      attr_reader :status

      def initialize(error, status, advice)
        @error = error
        @status = refused_by_tls? ? EXIT_DENIED : status
        @advice = advice
      end

      # @return [String] the failure and the advice, one line each
      def to_s
        [failure, advice].compact.join("\n  ")
      end

      private

      def refused_by_tls?
        @error.is_a?(Error) && @error.code == "TLS_REFUSED"
      end

      def failure
        complete = [Models::Unknown, AlreadyRunning, Incomplete, Release::TooLate].any? { |error_class| @error.is_a?(error_class) }
        complete ? @error.message : "#{@error.class}: #{@error.message.strip}"
      end

      def advice
        settings = Leasehold.configuration
        @advice && format(@advice, address: settings.address, cell_id: settings.cell_id)
      end
    end
  end
end
