# frozen_string_literal: true

module Leasehold
  # The enumerations of the contract, whose members models name by number or by Symbol.
  module Enumeration
    # @param enumeration [Module] `CLAIMS_BUCKET_TYPE`, for example
    # @param member [Integer, Symbol] a number needs no name, since the server may know more than the contract
    # @raise [Error::Misconfigured] there is no such member
    # @return [Integer]
    def self.number(enumeration, member)
      return member if member.is_a?(Integer)

      (enumeration.resolve(member) if member.is_a?(Symbol)) || raise(
        Error::Misconfigured, "`#{member.inspect}` is no #{kind(enumeration)}: name one of #{names(enumeration)}"
      )
    end

    # The number of a member that the contract has.
    #
    # @raise [Error::Misconfigured] there is no such member
    # @return [Integer]
    def self.known_number(enumeration, member)
      named = member
      named = member.zero? ? nil : enumeration.lookup(member) if member.is_a?(Integer)
      number(enumeration, named || member.to_s)
    end

    def self.kind(enumeration)
      enumeration.descriptor.name.split(".").last(2).join(" ").downcase
    end

    def self.names(enumeration)
      enumeration.constants.reject { |name| enumeration.resolve(name).zero? }.map { |name| "`:#{name}`" }.join(", ")
    end

    private_class_method :kind, :names
  end
end
