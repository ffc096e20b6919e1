# frozen_string_literal: true

require "rails_helper"
require "rails/generators"
require "generators/leasehold/install/install_generator"

RSpec.describe "the install generator" do
  around { |example| Dir.mktmpdir { |directory| @root = directory and example.run } }

  before do
    FileUtils.mkdir_p(File.join(@root, "config"))
    File.write(File.join(@root, "config/application.rb"), "class Application < Rails::Application\nend\n")
  end

  # @return [String] what the generator prints
  def generate(*options)
    output = StringIO.new
    $stdout = output
    Leasehold::Generators::InstallGenerator.start(options, destination_root: @root)
    output.string
  ensure
    $stdout = STDOUT
  end

  def migration
    File.read(Dir[File.join(@root, "db/migrate/*_create_cells_outstanding_leases.rb")].first)
  end

  def application
    File.read(File.join(@root, "config/application.rb"))
  end

  it "writes a migration that calls no code of the gem" do
    generate
    expect(migration).not_to match(/Leasehold/)
    expect(migration).to include("CREATE CONSTRAINT TRIGGER cells_outstanding_leases_refuse_late_commit")
      .and include("refuse_late_commit(#{Leasehold.configuration.commit_within_seconds})")
      .and include('execute "DROP FUNCTION cells_outstanding_leases_refuse_late_commit()"')
    expect { RubyVM::InstructionSequence.compile(migration) }.not_to raise_error
  end

  it "declares the statements safe if the application has strong_migrations" do
    stub_const("StrongMigrations", Module.new)
    generate
    expect(migration).to match(/^    safety_assured do\n      execute <<~SQL$/)
    expect { RubyVM::InstructionSequence.compile(migration) }.not_to raise_error
  end

  describe "with `--fx`" do
    let(:name) { "cells_outstanding_leases_refuse_late_commit" }

    def read(path)
      File.read(File.join(@root, path))
    end

    it "writes the commit guard into files of fx, and a migration that calls fx" do
      expect(generate("--fx")).to include("the migration needs the gem fx")

      expect(read("db/functions/#{name}_v01.sql")).to eq(<<~SQL)
        CREATE FUNCTION cells_outstanding_leases_refuse_late_commit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF clock_timestamp() - NEW.created_at > make_interval(secs => TG_ARGV[0]::double precision) THEN
            RAISE EXCEPTION 'lease % is older than % seconds: this transaction comes too late, run it again',
              NEW.uuid, TG_ARGV[0] USING ERRCODE = 'serialization_failure';
          END IF;
          RETURN NULL;
        END
        $$;
      SQL
      expect(read("db/triggers/#{name}_v01.sql")).to eq(<<~SQL)
        CREATE CONSTRAINT TRIGGER cells_outstanding_leases_refuse_late_commit AFTER INSERT ON cells_outstanding_leases
          DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cells_outstanding_leases_refuse_late_commit(#{Leasehold.configuration.commit_within_seconds});
      SQL
      expect(migration).to include(<<-RUBY).and match(/^    drop_function :#{name}$/)
    create_function :cells_outstanding_leases_refuse_late_commit, version: 1
    create_trigger :cells_outstanding_leases_refuse_late_commit, on: :cells_outstanding_leases, version: 1
      RUBY
      expect(migration).not_to match(/execute|Leasehold/)
      expect { RubyVM::InstructionSequence.compile(migration) }.not_to raise_error
    end

    it "keeps the schema's format" do
      expect(generate("--fx")).not_to match(/structure\.sql|has no triggers/)
      expect(application).not_to include("schema_format")
    end

    it "writes files whose SQL creates the commit guard", :rails do
      generate("--fx")
      connection = ActiveRecord::Base.connection
      connection.transaction do
        connection.execute("DROP TRIGGER #{name} ON cells_outstanding_leases; DROP FUNCTION #{name}()")
        %w[functions triggers].each { |directory| connection.execute(read("db/#{directory}/#{name}_v01.sql")) }

        expect(Leasehold::LeaseTable.new(connection).guarded?(Leasehold.configuration.stale_after_seconds)).to be(true)
        raise ActiveRecord::Rollback
      end
    end
  end

  it "says that it changes the schema's format, and does not with `--skip-schema-format`" do
    expect(generate).to match(/kept in `db.structure\.sql` from now on.*`--skip-schema-format`/m)
    expect(application).to include("schema_format = :sql")

    FileUtils.rm_rf(File.join(@root, "db"))
    File.write(File.join(@root, "config/application.rb"), "class Application < Rails::Application\nend\n")
    expect(generate("--skip-schema-format", "--force")).to match(/`db.schema\.rb` has no triggers.*leasehold:doctor/m)
    expect(application).not_to include("schema_format")
  end
end
