# frozen_string_literal: true

class Key < KeysRecord
  include Cells::Claimable

  cells_claims_attribute :fingerprint, type: CLAIMS_BUCKET_TYPE::SSH_KEY_FINGERPRINTS, feature_flag: :cells_claims_keys
  cells_claims_metadata subject_type: CLAIMS_SUBJECT_TYPE::USER, subject_key: :user_id
end
