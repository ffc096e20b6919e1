# frozen_string_literal: true

# What is in a database of its own.
class KeysRecord < ApplicationRecord
  self.abstract_class = true
  connects_to database: { writing: :keys }
end
