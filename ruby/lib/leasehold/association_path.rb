# frozen_string_literal: true

module Leasehold
  # Finds the path of associations from a record to others that were saved together with it. Follows
  # only associations that are in memory, as autosave does, so it loads nothing.
  class AssociationPath
    def initialize(record)
      @paths = {}.compare_by_identity
      @paths[record] = []
      follow(record)
    end

    # @return [String, nil] the names of the associations, joined with dots as Rails names nested
    #   errors; nil if none lead to the record
    def to(record)
      @paths[record]&.join(".")
    end

    private

    # Follows the associations breadth first, so that each record gets its shortest path.
    def follow(record)
      queue = [record]
      while (owner = queue.shift)
        neighbours(owner).each do |name, target|
          next if @paths.key?(target)

          @paths[target] = [*@paths[owner], name]
          queue << target
        end
      end
    end

    def neighbours(owner)
      names = owner.class.reflect_on_all_associations.map(&:name).select { |name| owner.association_cached?(name) }
      names.flat_map { |name| Array.wrap(owner.association(name).target).map { |target| [name, target] } }
    end
  end
end
