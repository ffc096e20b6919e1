# frozen_string_literal: true

require "fileutils"
require "rubygems/package"

require_relative "extension"

# Builds gems: the source gem, which contains the engine's source, and the precompiled gem for this
# platform.
module Package
  RUBY = Extension::RUBY
  ROOT = File.expand_path("..", RUBY)
  OUTPUT = File.join(RUBY, "pkg")
  # The crates of this workspace that the extension depends on, directly or indirectly.
  MEMBERS = %w[bindings core].freeze

  module_function

  # @return [String] the path of the source gem
  def source
    stage { |directory| build(specification(directory)) }
  end

  # Builds the precompiled gem for this platform. It contains an extension for each version of Ruby.
  #
  # @param libraries [Hash{String => String}] see {libraries}
  # @return [String] the path of the gem
  def native(libraries)
    stage do |directory|
      extensions = libraries.map do |series, library|
        File.join("lib/leasehold", series, File.basename(Extension::TARGET)).tap { |path| Extension.copy(library, path) }
      end
      build(precompiled(specification(directory), extensions, libraries.keys))
    end
  end

  # @param pairs [Array<String>] the version of Ruby and the path of its built extension, such as
  #   "3.1=target/release/libleasehold_ruby.so"; if empty, the extension is built for this Ruby
  # @raise [ArgumentError] if a pair has another form, or its file is missing
  # @return [Hash{String => String}] the absolute paths of the extensions by the version of Ruby
  def libraries(pairs)
    return { Extension::RUBY_SERIES => Extension.build("--release") } if pairs.empty?

    pairs.to_h do |pair|
      series, path = pair.match(/\A(\d+\.\d+)=(.+)\z/)&.captures
      raise ArgumentError, "`#{pair}` is not a version and a path: write `3.1=PATH`" unless path
      raise ArgumentError, "`#{path}` is missing: build it with Ruby #{series}, by `cargo build --release`" unless File.file?(path)

      [series, File.expand_path(path)]
    end
  end

  # @param series [Array<String>] versions of Ruby. A version between the oldest and the newest may lack an
  #   extension: there the gem raises an error that advises to install the source gem.
  def precompiled(specification, extensions, series)
    oldest, newest = series.minmax_by { |version| Gem::Version.new(version) }
    specification.platform = Gem::Platform.local
    specification.extensions = []
    specification.files = specification.files.grep_v(%r{\Aext/}) + extensions
    # Adds ".0", because RubyGems' `bump` drops the last part of a version: it turns 3.1 into 4.
    specification.required_ruby_version = [">= #{oldest}", "< #{Gem::Version.new("#{newest}.0").bump}.dev"]
    specification
  end

  # Runs the block in a directory that contains all files of the gem.
  def stage
    directory = File.join(RUBY, "tmp/gem")
    FileUtils.rm_rf(directory)
    FileUtils.mkdir_p(directory)
    FileUtils.cp_r(%w[config ext lib sig README.md leasehold.gemspec].map { |name| File.join(RUBY, name) }, directory)
    FileUtils.cp(File.join(ROOT, "LICENSE"), directory)
    FileUtils.rm_f(Dir[File.join(directory, "lib/**/*.so")])
    carry_engine(File.join(directory, "ext"))
    Dir.chdir(directory) { yield directory }
  end

  # Adds the engine's crates as a workspace of their own, with the project's locked versions.
  def carry_engine(directory)
    MEMBERS.each do |member|
      FileUtils.mkdir_p(File.join(directory, member))
      FileUtils.cp_r(%w[Cargo.toml src].map { |name| File.join(ROOT, member, name) }, File.join(directory, member))
    end
    File.write(File.join(directory, "Cargo.toml"), workspace(File.read(File.join(ROOT, "Cargo.toml"))))
    FileUtils.cp(File.join(ROOT, "Cargo.lock"), directory)
    # Removes from the lock file the packages that the gem does not contain. Works offline, so that
    # no version changes.
    system("cargo", "update", "--workspace", "--offline", "--quiet", chdir: directory, exception: true)
  end

  def workspace(manifest)
    members = (MEMBERS + ["leasehold"]).inspect
    manifest.sub(/^members = .*$/, "members = #{members}")
            .sub(/^#[^\n]*\ndefault-members = .*$/, "")
            .sub(/\n\[profile\.dev\].*\z/m, "\n")
  end

  def specification(directory)
    # `dup`, because RubyGems caches a loaded specification by its path: a second gem of the same
    # run would get the changes of the first.
    Gem::Specification.load(File.join(directory, "leasehold.gemspec")).dup
  end

  def build(specification)
    FileUtils.mkdir_p(OUTPUT)
    path = File.join(OUTPUT, specification.file_name)
    Gem::Package.build(specification, false, false, path)
    path
  end
end
