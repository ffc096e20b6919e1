# frozen_string_literal: true

module Leasehold
  # The way from one record to others that were saved together with it, by associations. It goes by what is in memory, as
  # autosaving does, so nothing is loaded for it.
  class AssociationPath
    def initialize(record)
      @paths = {}.compare_by_identity
      @paths[record] = []
      follow(record)
    end

    # @return [String, nil] the names of associations with dots between, as Rails names errors; nil where none lead there
    def to(record)
      @paths[record]&.join(".")
    end

    private

    # The nearest first, so that the shortest path is found.
    def follow(record)
      ways = [record]
      while (owner = ways.shift)
        neighbours(owner).each do |name, target|
          next if @paths.key?(target)

          @paths[target] = [*@paths[owner], name]
          ways << target
        end
      end
    end

    def neighbours(owner)
      names = owner.class.reflect_on_all_associations.map(&:name).select { |name| owner.association_cached?(name) }
      names.flat_map { |name| Array.wrap(owner.association(name).target).map { |target| [name, target] } }
    end
  end
end
