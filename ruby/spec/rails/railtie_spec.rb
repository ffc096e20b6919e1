# frozen_string_literal: true

require "rails_helper"
require "open3"
require "rbconfig"

# Boots small applications in processes of their own.
RSpec.describe "the gem in an application that boots" do
  around { |example| Dir.mktmpdir { |directory| @root = directory and example.run } }

  # @param settings [String] code of the application's class
  # @param script [String] runs after the boot
  # @return [String] what the script prints
  def boot(settings, script, files: {}, **environment)
    files.each do |path, text|
      FileUtils.mkdir_p(File.dirname(File.join(@root, path)))
      File.write(File.join(@root, path), text)
    end
    code = <<~RUBY
      require "rails"
      require "active_record/railtie"
      require "active_job/railtie"
      require "leasehold"
      class Small < Rails::Application
        config.root = #{@root.inspect}
        config.logger = Logger.new(File::NULL)
        config.eager_load = false
        config.secret_key_base = "a secret of tests"
        #{settings}
      end
      Small.initialize!
      #{script}
    RUBY
    variables = { "LEASEHOLD_ADDRESS" => nil, "RAILS_ENV" => "production", **environment.transform_keys(&:to_s) }
    library = File.expand_path("../../lib", __dir__)
    output, errors, status = Open3.capture3(variables, RbConfig.ruby, "-I", library, "-e", code, chdir: @root)
    raise errors unless status.success?

    output
  end

  it "is configured by `config.leasehold`, which initializers can change" do
    settings = <<~RUBY
      config.leasehold.address = "claims.example:7171"
      config.leasehold.cell_id = 5
    RUBY
    initializer = { "config/initializers/leasehold.rb" => "Leasehold.configure { |config| config.cell_id += 1 }" }

    expect(boot(settings, "p Leasehold.configuration.address, Leasehold.configuration.cell_id", files: initializer))
      .to eq(%("claims.example:7171"\n6\n))
    expect { boot("config.leasehold.adress = 5", "") }.to raise_error(/undefined method .adress=/)
  end

  it "takes defaults from environment variables, and needs no certificates in development" do
    show = "p Leasehold.configuration.then { |settings| [settings.address, settings.cell_id, settings.tls] }"
    variables = { LEASEHOLD_ADDRESS: "claims.example:7171", LEASEHOLD_CELL_ID: "7" }
    paths = { LEASEHOLD_CA: "ca.pem", LEASEHOLD_CERT: "cert.pem", LEASEHOLD_KEY: "key.pem" }

    expect(boot("", show, **variables)).to eq(%(["claims.example:7171", 7, nil]\n))
    expect(boot("", "p Leasehold.configuration.tls.values", **paths)).to eq(%(["ca.pem", "cert.pem", "key.pem"]\n))
    expect(boot("", "p Leasehold.configuration.tls[:insecure]", RAILS_ENV: "development")).to eq("true\n")
  end

  it "adds the locales that the application has" do
    show = "p I18n.available_locales.include?(:de), I18n.t('errors.messages.busy', locale: :en)"

    expect(boot("", show)).to eq(%(false\n"is being changed elsewhere, try again"\n))
    expect(boot("config.i18n.available_locales = [:en, :de]", show)).to start_with("true\n")
    expect(boot("config.i18n.default_locale = :de", show)).to start_with("true\n")
    expect(boot("", show, files: { "config/locales/views.de.yml" => "de:\n  hello: Hallo\n" })).to start_with("true\n")
  end

  it "leaves the application its own constants below `Cells`" do
    own = { "app/models/cells/thing.rb" => "module Cells\n  class Thing; end\nend\n" }

    expect(boot("", "p Cells::Thing, Cells::BulkClaimsWorker", files: own)).to eq("Cells::Thing\nCells::BulkClaimsWorker\n")
  end

  it "refuses files of the application that its own constants would hide" do
    { "app/models/cells.rb" => "the gem defines `Cells`: move its contents",
      "app/models/concerns/cells/claimable.rb" => "the gem defines `Cells::Claimable`: remove or rename it",
      "app/models/cells/transaction_record.rb" => "the gem defines `Cells::TransactionRecord`: remove or rename it",
      "once/cells/bulk_claims_worker.rb" => "the gem defines `Cells::BulkClaimsWorker`: remove or rename it" }.each do |file, reason|
      settings = 'config.autoload_once_paths << File.join(root, "once")'
      expect { boot(settings, "", files: { file => "" }) }.to raise_error(/#{file}` would never be loaded, because #{reason}/)
      FileUtils.rm(File.join(@root, file))
    end
  end

  it "is loaded at boot with `config.eager_load`, and then by no save" do
    script = <<~RUBY
      loaded = $LOADED_FEATURES.dup
      Leasehold.constants.each { |name| Leasehold.const_get(name) }
      [Leasehold::VerifyJob, Leasehold::Client, Leasehold::Native, Cells::Claimable, Cells::BulkClaimsWorker]
      p ($LOADED_FEATURES - loaded).grep(/leasehold|cells/)
    RUBY

    expect(boot("config.eager_load = true", script)).to eq("[]\n")
  end
end
