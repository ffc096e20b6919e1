# frozen_string_literal: true

module Leasehold
  # To be prepended to an adapter of ActiveRecord: raises exceptions of the gem for refusals of the engine's SQL. A deferred
  # trigger can refuse any COMMIT.
  class SqlstateTranslation < Module
    # @param exceptions [Hash{String => Class}] subclasses of `ActiveRecord::StatementInvalid`, by SQLSTATE
    def initialize(exceptions)
      super()
      # ActiveRecord calls this method for each error of the database, and raises the returned exception (activerecord
      # 6.1.7.10, connection_adapters/postgresql_adapter.rb:491; 7.2.2.2, :765).
      define_method(:translate_exception) do |exception, message:, sql:, binds:|
        refusal = defined?(PG::Error) && exception.is_a?(PG::Error) && exceptions[exception.result&.error_field(PG::PG_DIAG_SQLSTATE)]
        refusal ? refusal.new(message, sql: sql, binds: binds) : super(exception, message: message, sql: sql, binds: binds)
      end
      private :translate_exception
    end
  end
end
