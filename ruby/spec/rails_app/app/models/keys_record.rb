# frozen_string_literal: true

# The base class of models in the second database.
class KeysRecord < ApplicationRecord
  self.abstract_class = true
  connects_to database: { writing: :keys }
end
