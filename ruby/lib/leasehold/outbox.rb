# frozen_string_literal: true

require "active_record"
require "leasehold/active_record_compat"
require "leasehold/transactions/nesting"
require "leasehold/queues"

module Leasehold
  # The outbox in a database of the application: requests and completions that are written in its transactions, and happen
  # exactly if these commit (Q14). The migration of `rails generate leasehold:outbox` installs it.
  class Outbox
    NO_OUTBOX = "the database has no outbox: run the migration of `rails generate leasehold:outbox`"
    # The most requests of one statement.
    SLICE = 100
    # The parameters of a request, each with its SQL. Keys and bodies are bytes, because ActiveRecord logs only the size of such
    # a value (Q22).
    SUBMITTED = {
      queue: "%s", key: "convert_from(%s, 'UTF8')", body: "%s", kind: "%s", priority: "%s", delay: "make_interval(secs => %s)",
      max_attempts: "%s", id: "%s"
    }.freeze
    COMPLETE = "SELECT FROM leasehold_complete($1, $2, convert_from($3, 'UTF8'), $4, $5)"
    DONE = "SELECT done::text FROM unnest(leasehold_done($1, convert_from($2, 'UTF8'), $3)) AS found (done)"
    UUID = "H8H4H4H4H12"
    private_constant :NO_OUTBOX, :SLICE, :SUBMITTED, :COMPLETE, :DONE, :UUID

    # Calls a block after the COMMIT of the transaction that it has joined.
    class AfterCommit
      include ActiveRecordCompat::Participant

      # @param block [Proc]
      def initialize(connection, block)
        @connection = connection
        @block = block
      end

      # Calls the block. A savepoint inside a transaction with `joinable: false` was only released: its transaction may still be
      # rolled back, so the block waits for that one.
      def committed!(**)
        Transactions::Nesting.none_open?(@connection) ? @block.call : ActiveRecordCompat.add_participant(@connection, self)
      end
    end
    private_constant :AfterCommit

    class << self
      # Returns the outbox of the transaction that this thread has open: of the first class of the setting `outbox_databases`
      # whose database has one.
      #
      # @return [Outbox, nil] nil without such a transaction
      def of_transaction
        model = databases.find { |database| open?(database) }
        model && new(model)
      end

      # @return [Array<Class>] the classes of the setting `outbox_databases`; none by default
      def databases
        Array(Leasehold.configuration.outbox_databases).map { |database| database.is_a?(String) ? database.constantize : database }
      end

      # Returns true if this thread has a transaction of the class's database open.
      #
      # @api private
      def open?(model)
        !Transactions::Nesting.none_open?(ActiveRecordCompat.held_connection(model))
      end
    end

    # @param model [Class] a class of the database
    # @raise [Error::Misconfigured] if this thread has no transaction on the database
    def initialize(model = ActiveRecord::Base)
      unless self.class.open?(model)
        raise Error::Misconfigured, "the outbox is written outside of a transaction: write it in the transaction of the work"
      end

      @connection = ActiveRecordCompat.held_connection(model)
    end

    # Submits requests as part of the transaction.
    #
    # @api private
    # @param message [Contract::Leasehold::Queues::V1::SubmitRequest]
    # @raise [Error::Invalid] if the server would refuse a request; PostgreSQL has aborted the transaction then
    # @raise [Error::Misconfigured] if the database has no outbox
    # @return [Array<SubmittedRequest>]
    def submit(message)
      message.requests.each_slice(SLICE) { |slice| submit_slice(message.queue, slice) }
      message.requests.map { |request| SubmittedRequest.new(id: uuid(request.request_id), is_new: true) }
    end

    # Completes a batch as part of the transaction, and leaves done-marks of its requests.
    #
    # @api private
    # @param session_id [String] 16 bytes
    # @param requests [Array<String>] ids
    # @raise [Error::Misconfigured] if the database has no outbox
    # @return [void]
    def complete(session_id, queue, key, fence, requests)
      run(COMPLETE, [uuid(session_id), queue, bytes(key), fence, array(requests)])
    end

    # Returns the requests that former workers have done in transactions.
    #
    # @api private
    # @param requests [Array<String>] ids
    # @raise [Error::Misconfigured] if the database has no outbox
    # @return [Array<String>] ids
    def done(queue, key, requests)
      run(DONE, [queue, bytes(key), array(requests)]).rows.flatten
    end

    # Calls the block after the COMMIT of the transaction.
    #
    # @api private
    def on_commit(&block)
      ActiveRecordCompat.add_participant(@connection, AfterCommit.new(@connection, block))
    end

    private

    def submit_slice(queue, requests)
      values = requests.flat_map do |request|
        [queue, bytes(request.key), bytes(request.body), request.kind.to_s.downcase, request.priority, request.delay_micros / 1e6,
         request.max_attempts, uuid(request.request_id)]
      end
      run("SELECT #{Array.new(requests.size) { |place| call(place * SUBMITTED.size) }.join(", ")}", values)
    end

    # @param offset [Integer] the number of parameters before those of the call
    def call(offset)
      arguments = SUBMITTED.map.with_index(offset + 1) { |(name, form), number| "#{name} => #{format(form, "$#{number}")}" }
      "leasehold_submit(#{arguments.join(", ")})"
    end

    def run(sql, values)
      @connection.exec_query(sql, "Leasehold", values.map { |value| bind(value) })
    rescue ActiveRecord::StatementInvalid => error
      raise Error::Misconfigured, NO_OUTBOX if error.cause.is_a?(PG::UndefinedFunction)
      raise unless error.cause.is_a?(PG::InvalidParameterValue)

      # The message names the field, and has none of its text.
      raise Error::Invalid.new(error.cause.message.lines.first.strip, code: "INVALID_UPDATE")
    end

    def bind(value)
      type = value.is_a?(ActiveModel::Type::Binary::Data) ? ActiveModel::Type::Binary : ActiveModel::Type::Value
      ActiveRecord::Relation::QueryAttribute.new("value", value, type.new)
    end

    # @param ids [Array<String>]
    # @return [String] an array of PostgreSQL
    def array(ids)
      "{#{ids.join(",")}}"
    end

    def bytes(text)
      ActiveModel::Type::Binary::Data.new(text.b)
    end

    def uuid(bytes)
      bytes.unpack(UUID).join("-")
    end
  end
end
