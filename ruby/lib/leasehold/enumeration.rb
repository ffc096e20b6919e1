# frozen_string_literal: true

module Leasehold
  # Looks up members of the contract's enumerations, which models give as a number or a Symbol.
  module Enumeration
    # Returns the number of a member. A number is returned unchanged even if the contract has no
    # name for it: the server may know more members than this version of the contract.
    #
    # @param enumeration [Module] for example `CLAIMS_BUCKET_TYPE`
    # @param member [Integer, Symbol]
    # @raise [Error::Misconfigured] if no member has this name
    # @return [Integer]
    def self.number(enumeration, member)
      return member if member.is_a?(Integer)

      (enumeration.resolve(member) if member.is_a?(Symbol)) || raise(
        Error::Misconfigured, "`#{member.inspect}` is not a #{kind(enumeration)}: use one of #{names(enumeration)}"
      )
    end

    # Returns the number of a member that the contract names.
    #
    # @raise [Error::Misconfigured] if the contract has no such member
    # @return [Integer]
    def self.known_number(enumeration, member)
      named = member
      named = member.zero? ? nil : enumeration.lookup(member) if member.is_a?(Integer)
      number(enumeration, named || member.to_s)
    end

    def self.kind(enumeration)
      enumeration.descriptor.name.split(".").last(2).join(" ").downcase
    end

    # @return [String] the names of the members, for a message
    def self.names(enumeration)
      enumeration.constants.reject { |name| enumeration.resolve(name).zero? }.map { |name| "`:#{name}`" }.join(", ")
    end

    private_class_method :kind
  end
end
