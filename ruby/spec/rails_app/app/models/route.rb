# frozen_string_literal: true

# Claims paths of the first level only.
class Route < ApplicationRecord
  include Cells::Claimable

  cells_claims_scope { where("strpos(path, '/') = 0") }

  cells_claims_attribute :path, type: CLAIMS_BUCKET_TYPE::ROUTES, feature_flag: :cells_claims_routes,
                                if: ->(record) { record.path&.exclude?("/") }
  cells_claims_metadata subject_type: CLAIMS_SUBJECT_TYPE::USER, subject_key: :user_id

  belongs_to :user
end
