# frozen_string_literal: true

require "active_record"
require "active_support/all"
require "securerandom"
require_relative "../leasehold"
require_relative "autoloads"
require_relative "proto/gitlab/cells/topology_service/claims/v1/record_pb"
require_relative "events"
require_relative "active_record_compat"
require_relative "models"
require_relative "enumeration"
require_relative "claimed_attribute"
require_relative "claimed_table"
require_relative "column_types"
require_relative "source_key"
require_relative "stored_row"
require_relative "row_update"
require_relative "lease_table"
require_relative "lease_tables"
require_relative "association_path"
require_relative "claims_rejected"
require_relative "transactions/nesting"
require_relative "transactions/net_effect"
require_relative "transactions/change"
require_relative "transactions/settlement"
require_relative "transactions/unanswered_begin"
require_relative "transactions/covered_effect"
require_relative "transactions/covered_row"
require_relative "transactions/lease_begin"
require_relative "transactions/interrupted_write"
require_relative "transactions/nested_destroys"
require_relative "transactions/update"
require_relative "lease_first"
require_relative "claims_capture"
require_relative "../cells/claimable"

Leasehold::Error.include(Cells::TransactionRecord::Error)

ActiveSupport.on_load(:active_record) do
  own, savepoint = ActiveRecord::ConnectionAdapters::RealTransaction, ActiveRecord::ConnectionAdapters::SavepointTransaction
  [own, savepoint].each { |transaction| transaction.prepend(Leasehold::ActiveRecordCompat::CommitCheck) }
  own.superclass.prepend(Leasehold::ActiveRecordCompat::CommitPoint)
  ActiveRecord::Relation.prepend(Leasehold::ActiveRecordCompat::CreateOrFind)
end
