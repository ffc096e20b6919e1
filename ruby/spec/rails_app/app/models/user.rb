# frozen_string_literal: true

class User < ApplicationRecord
  include Cells::Claimable

  cells_claims_attribute :id, type: CLAIMS_BUCKET_TYPE::USER_IDS, feature_flag: :cells_claims_users
  cells_claims_attribute :username, type: CLAIMS_BUCKET_TYPE::USERNAMES, feature_flag: :cells_claims_users
  cells_claims_metadata subject_type: CLAIMS_SUBJECT_TYPE::USER, subject_key: :id

  has_many :emails, dependent: :destroy
  has_many :routes, dependent: :destroy

  validates :username, presence: true
end
