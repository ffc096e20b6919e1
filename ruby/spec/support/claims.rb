# frozen_string_literal: true

module Support
  # Builds claims.
  module Claims
    USERNAMES = 4
    USER = 4
    USERS_TABLE = 1

    module_function

    # @return [Leasehold::Claim] the claim of a username by the user with this id
    def username(value, id: 7)
      Leasehold::Claim.new(
        bucket_type: USERNAMES,
        bucket_value: value,
        subject_type: USER,
        subject_id: id,
        source_type: USERS_TABLE,
        source_id: [id].pack("Q>")
      )
    end
  end
end
