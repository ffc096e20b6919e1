# frozen_string_literal: true

require "rails_helper"
require "rails/generators"
require "generators/leasehold/install/install_generator"
require "generators/leasehold/update/update_generator"

RSpec.describe "the update generator", :rails do
  around { |example| Dir.mktmpdir { |directory| @root = directory and example.run } }

  before do
    FileUtils.mkdir_p(File.join(@root, "config"))
    File.write(File.join(@root, "config/application.rb"), "class Application < Rails::Application\nend\n")
    run_generator(Leasehold::Generators::InstallGenerator)
  end

  # @return [String] the printed text
  def run_generator(generator, *options)
    output = StringIO.new
    $stdout = output
    generator.start(options, destination_root: @root)
    output.string
  ensure
    $stdout = STDOUT
  end

  def update(*options)
    run_generator(Leasehold::Generators::UpdateGenerator, *options)
  end

  # @return [String, nil] the code of the newest migration that the generator wrote
  def migration
    path = Dir[File.join(@root, "db/migrate/*_update_cells_outstanding_leases*.rb")].max
    path && File.read(path)
  end

  # Runs the block with another limit in the commit guard, as a later version of the gem or a changed setting has it.
  def with_limit(seconds)
    before = Leasehold.configuration.commit_within_seconds
    Leasehold.configuration.commit_within_seconds = seconds
    yield
  ensure
    Leasehold.configuration.commit_within_seconds = before
  end

  it "writes nothing if the migrations have the present SQL" do
    expect(update).to include("the migrations have the SQL of this version: nothing to update")
    expect(migration).to be_nil
  end

  it "writes the migration with `--force` all the same, for a database that lacks the trigger" do
    update("--force")

    expect(migration).to include("CREATE CONSTRAINT TRIGGER")
  end

  it "writes one migration with the present SQL" do
    with_limit(60) do
      expect(update).to include("update_cells_outstanding_leases")
      expect(update).to include("nothing to update")
    end

    expect(migration).not_to match(/Leasehold/)
    expect(migration).to include("refuse_late_commit(60)")
  end

  it "takes names that are free, so that a second update can follow" do
    [60, 70].each { |seconds| with_limit(seconds) { update } }

    expect(migration).to match(/class UpdateCellsOutstandingLeases2 /).and include("refuse_late_commit(70)")
  end

  it "replaces the commit guard of a database that has it" do
    with_limit(60) { update }
    Object.class_eval(migration)
    connection = ActiveRecord::Base.connection
    connection.transaction do
      ActiveRecord::Migration.suppress_messages { UpdateCellsOutstandingLeases.new.exec_migration(connection, :up) }

      expect([61, 60].map { |seconds| Leasehold::LeaseTable.new(connection).guarded?(seconds) }).to eq([true, false])
      raise ActiveRecord::Rollback
    end
  end

  describe "of an application with files of fx" do
    let(:name) { "cells_outstanding_leases_refuse_late_commit" }

    before { run_generator(Leasehold::Generators::InstallGenerator, "--fx", "--force") }

    def definitions
      Dir[File.join(@root, "db/{functions,triggers}/*.sql")].map { |path| path.delete_prefix("#{@root}/db/") }
    end

    it "writes nothing if the files have the present SQL" do
      expect(update).to include("nothing to update")
      expect(definitions).to contain_exactly("functions/#{name}_v01.sql", "triggers/#{name}_v01.sql")
      expect(migration).to be_nil
    end

    it "writes files of the next version, and a migration that replaces the commit guard by them" do
      with_limit(60) do
        expect(update).not_to include("has no triggers")
        expect(update).to include("nothing to update")
      end

      expect(definitions).to include("functions/#{name}_v02.sql", "triggers/#{name}_v02.sql").and have_attributes(size: 4)
      expect(File.read(File.join(@root, "db/triggers/#{name}_v02.sql"))).to include("refuse_late_commit(60)")
      expect(migration).to include(<<-RUBY)
    execute <<~SQL
      DROP TRIGGER IF EXISTS cells_outstanding_leases_refuse_late_commit ON cells_outstanding_leases;
      DROP FUNCTION IF EXISTS cells_outstanding_leases_refuse_late_commit();
    SQL
    create_function :cells_outstanding_leases_refuse_late_commit, version: 2
    create_trigger :cells_outstanding_leases_refuse_late_commit, on: :cells_outstanding_leases, version: 2
      RUBY
    end
  end

  it "declares the statements safe if the application has strong_migrations" do
    stub_const("StrongMigrations", Module.new)
    with_limit(60) { update }

    expect(migration).to match(/^    safety_assured do\n      execute <<~SQL$/)
  end

  it "keeps the schema's format, and says that `db/schema.rb` has no triggers unless told otherwise" do
    File.write(File.join(@root, "config/application.rb"), "class Application < Rails::Application\nend\n")
    said = with_limit(60) { update }
    unsaid = with_limit(70) { update("--skip-schema-format") }

    expect([said, unsaid].map { |text| text.include?("`db/schema.rb` has no triggers") }).to eq([true, false])
    expect(File.read(File.join(@root, "config/application.rb"))).not_to include("schema_format")
  end
end
