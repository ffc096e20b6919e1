# frozen_string_literal: true

require "rails_helper"
require "rails/generators"
require "generators/leasehold/guard/guard_generator"

RSpec.describe "the generator of the guard" do
  around { |example| Dir.mktmpdir { |directory| @root = directory and example.run } }

  # @return [String] what the generator prints
  def generate
    output = StringIO.new
    $stdout = output
    Leasehold::Generators::GuardGenerator.start([], destination_root: @root)
    output.string
  ensure
    $stdout = STDOUT
  end

  def migration(name = "create_leasehold_guards")
    File.read(Dir[File.join(@root, "db/migrate/*_#{name}.rb")].first)
  end

  # Makes the application's migrations those of an earlier version, whose guard has no slots.
  def forget_slots
    Dir[File.join(@root, "db/migrate/*.rb")].each do |path|
      File.write(path, File.read(path).gsub("interval, slot integer) RETURNS", "interval, former integer) RETURNS"))
    end
  end

  it "writes a migration that calls no code of the gem" do
    generate
    expect(migration).to include("FUNCTION leasehold_guard(").and include("drop_table :leasehold_guards")
    expect(migration).not_to match(/Leasehold::/)
    expect(migration).to include(Leasehold::Native::GUARD_SQL.lines[3].strip)
  end

  it "declares the statements safe if the application has strong_migrations" do
    stub_const("StrongMigrations", Module.new)
    generate
    expect(migration).to match(/^    safety_assured do\n      execute <<~'SQL'$/)
    expect { RubyVM::InstructionSequence.compile(migration) }.not_to raise_error
  end

  it "advises on the schema's format" do
    allow(ActiveRecord.respond_to?(:schema_format) ? ActiveRecord : ActiveRecord::Base).to receive(:schema_format).and_return(:ruby, :sql)
    expect(generate).to match(/`db.schema\.rb` has no functions.*schema_format = :sql/m)
    FileUtils.rm_rf(File.join(@root, "db"))
    expect(generate).to match(/`db.structure\.sql` keeps the guard/)
  end

  it "writes nothing if the migrations have the present guard, and else a migration that installs it over the former one" do
    generate
    expect(generate).to include("nothing to update")
    %w[update_leasehold_guards update_leasehold_guards_2].each do |name|
      forget_slots
      expect(generate).to include("#{name}.rb")
      expect(generate).to include("nothing to update")
      expect(migration(name)).to include("class #{name.camelize} ").and include(Leasehold::Native::GUARD_SQL.lines[3].strip)
      expect { RubyVM::InstructionSequence.compile(migration(name)) }.not_to raise_error
    end
  end

  it "installs the guard, and removes all of it", :rails do
    generate
    stub_const("CreateLeaseholdGuards", Class.new)
    Object.send(:remove_const, :CreateLeaseholdGuards)
    eval(migration) # rubocop:disable Security/Eval
    objects = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'leasehold_guard%' " \
              "UNION ALL SELECT count(*) FROM pg_class WHERE relname LIKE 'leasehold_guard%' AND relkind = 'r'"
    ActiveRecord::Migration.suppress_messages { CreateLeaseholdGuards.migrate(:up) }
    expect { User.transaction { Leasehold::Guard.new(User).call("user.update/7", 1, 0) } }.to raise_error(Leasehold::GuardSessionLost)
    expect(ActiveRecord::Base.connection.select_values(objects)).to eq([4, 2])

    ActiveRecord::Migration.suppress_messages { CreateLeaseholdGuards.migrate(:down) }
    expect(ActiveRecord::Base.connection.uncached { ActiveRecord::Base.connection.select_values(objects) }).to eq([0, 0])
  end
end
