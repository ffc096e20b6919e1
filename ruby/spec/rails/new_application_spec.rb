# frozen_string_literal: true

require "rails_helper"
require "bundler"
require "open3"

# Creates a Rails application by following the guide word for word. Only the gem's directory, the
# server and the database are added.
RSpec.describe "a new Rails application", :rails do
  root = File.expand_path("../..", __dir__)

  let(:directory) { Dir.mktmpdir("leasehold-application") }
  let(:application) { File.join(directory, "shop") }
  let(:readme) { File.read(File.join(root, "README.md")) }
  let(:guide) { %w[rails.md rails-queues.md].sum("") { |page| File.read(File.join(root, "../docs/src/guides/#{page}")) } }
  let(:quick_start) { guide[/^## Quick start\n(.*?)^## /m, 1] }
  let(:model) { quick_start[/^```ruby\n(# app\/models\/user\.rb\n.*?)^```/m, 1] }
  let(:database) { Support::PostgresCluster.instance.create_database }

  after { FileUtils.rm_rf(directory) }

  def run(*command, chdir: application)
    environment = {
      "DATABASE_URL" => Support::PostgresCluster.instance.url(database), "LEASEHOLD_ADDRESS" => server.address,
      "LEASEHOLD_CELL_ID" => "1", "RAILS_ENV" => "development", "SECRET_KEY_BASE" => "x" * 64, "BUNDLE_FROZEN" => nil,
      "BUNDLER_VERSION" => bundler_version
    }
    output, status = Bundler.with_unbundled_env { Open3.capture2e(environment, *command, chdir: chdir) }
    raise "`#{command.join(' ')}` failed:\n#{output}" unless status.success?

    output
  end

  # @return [String] the version of Debian's own bundler: the newer one that comes with Ruby does
  #   not find all of Debian's gems
  def bundler_version
    bundlers = Gem::Specification.find_all_by_name("bundler")
    bundlers.find { |bundler| bundler.full_gem_path.include?("/rubygems-integration/") }&.version&.to_s
  end

  # @return [Array<String>] the blocks of a language in a document, in order
  def blocks(text, language)
    text.scan(/^```#{language}\n(.*?)^```/m).flatten
  end

  def make_application(root)
    run("rails", "new", "shop", "--minimal", "--database=postgresql", "--skip-bundle", "--skip-git", "--skip-puma", "--skip-sprockets",
        "--skip-asset-pipeline", "--skip-dev-gems", "--skip-bootsnap", "--skip-listen", "--skip-spring", "--skip-test", "--no-rc", chdir: directory)
    gemfile = File.join(application, "Gemfile")
    line = blocks(quick_start, "ruby").first[/^gem .*$/]
    needed = File.readlines(gemfile).grep(/^(source|gem ['"](rails|pg)['"])/)
    File.write(gemfile, needed.join + "#{line}, path: #{root.inspect}\n")
    run("bundle", "lock", "--local")
  end

  def generate_user
    run("bin/rails", "generate", "model", "User", "username:string", "--no-test-framework")
  end

  it "claims after following the guide" do
    make_application(root)
    install, try, verify = blocks(quick_start, "sh").map { |block| block.lines(chomp: true) }
    generate_user
    # Uses only the gems that are installed: Bundler would fetch newer ones.
    install.each { |line| run("bash", "-c", line.sub(/\Abundle install\z/, "bundle install --local")) }
    File.write(File.join(application, "app/models/user.rb"), model)
    # The server answers late on a busy machine.
    File.write(File.join(application, "config/initializers/patience.rb"), "Leasehold.configuration.request_deadline_seconds = 30\n")

    expect(try.map { |line| run("bash", "-c", line) }.last).to end_with("carla\n")
    expect(claimed(User, :username)).to eq(["carla"])
    expect(run("bash", "-c", verify.last)).to include("User")

    as_cell(2) { User.create!(username: "bob") }
    again = %(print User.create(username: "bob").errors.full_messages.to_sentence)
    expect(run("bin/rails", "runner", again)).to end_with("Username has already been taken")

    dumped = File.read(File.join(application, "db/structure.sql"))
    expect(dumped).to include("cells_outstanding_leases_refuse_late_commit")
    expect(run("bin/rails", "leasehold:reconcile")).to match(/leases seen +0/)
    expect(run("bin/rails", "db:rollback", "STEP=2")).to include("reverted")
  end

  it "finds the code of the README in the guide" do
    %w[ruby sh].each do |language|
      expect(blocks(readme, language)).to all(satisfy("be in the guide") { |block| blocks(guide, language).include?(block) })
    end
    expect(blocks(readme, "ruby").size).to eq(5)
  end
end
