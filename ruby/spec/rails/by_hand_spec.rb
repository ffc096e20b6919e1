# frozen_string_literal: true

require "rails_helper"
require "open3"
require "rbconfig"

# Runs the rake tasks in a shell, and examines their output and exit codes.
RSpec.describe "rake tasks", :rails do
  # @return [Array(Integer, String, String)] the exit code, standard output and standard error
  def rake(task, *arguments, **environment)
    script = "require 'rake'; Rails.application.load_tasks; Rake::Task[ARGV.shift].invoke(*ARGV)"
    variables = Support::Cell[1].environment(server.address).merge(environment.transform_keys(&:to_s))
    output, errors, status = Open3.capture3(
      variables, RbConfig.ruby, "-r", Support::CellProcess::ENVIRONMENT, "-e", script, task, *arguments
    )
    # Ruby 3.2 and later warn of gRPC 1.51, once per process.
    [status.exitstatus, output, errors.lines.grep_v(/undefining the allocator of T_DATA class/).join]
  end

  def insert_users(*names)
    User.insert_all(names.map { |name| { username: name, created_at: 1.day.ago, updated_at: 1.day.ago } })
  end

  describe "leasehold:reconcile" do
    it "exits with 0 if all leases are settled" do
      expect(rake("leasehold:reconcile")).to match([0, /^  failed +0$/, ""])
    end

    it "reports an unreachable server and its address" do
      server.kill
      code, output, errors = rake("leasehold:reconcile")

      expect(code).to eq(5)
      expect(output).to match(/^  incomplete +true$/)
      expect(errors.lines(chomp: true)).to match([
        "some steps failed, the next run tries them again:", /\A  list leases: Leasehold::Error::Unavailable: .*connect/,
        "  check that the claims server runs at `#{server.address}`, then run the task again"
      ])
    end

    it "reports a server that refuses the cell's certificate, and the settings to check" do
      Support::Certificates.run do |certificates|
        Support::ClaimsServer.run(tls: certificates.server) do |strict|
          Support::Certificates.run do |others|
            tls = others.cell(1).merge(ca: certificates.cell(1)[:ca])
            code, _, errors = rake(
              "leasehold:reconcile", LEASEHOLD_ADDRESS: strict.address.sub("127.0.0.1", "localhost"), LEASEHOLD_CA: tls[:ca],
                                     LEASEHOLD_CERT: tls[:certificate], LEASEHOLD_KEY: tls[:key]
            )

            expect(errors).to match(/list leases: Leasehold::Error::Misconfigured: .*not accept `tls.certificate`.*`client_ca`/)
            expect(code).to eq(6)
          end
        end
      end
    end

    it "reports an invalid setting before any call" do
      code, output, errors = rake("leasehold:reconcile", LEASEHOLD_ADDRESS: "nowhere")

      expect([code, output]).to eq([2, ""])
      expect(errors).to eq("Leasehold::Error::Misconfigured: `address` is \"nowhere\": set it to host and port of the claims server, without `http://`\n")
    end

    it "reports failures to a Ruby that prints no warnings (`ruby -W0`)" do
      expect(rake("leasehold:reconcile", LEASEHOLD_ADDRESS: "nowhere", RUBYOPT: "-W0")).to match([2, "", /\ALeasehold::Error::Misconfigured: /])
    end

    it "reports a missing migration" do
      KeysRecord.connection.execute("ALTER TABLE cells_outstanding_leases RENAME TO away")
      code, _, errors = rake("leasehold:reconcile")

      expect(code).to eq(1)
      expect(errors).to include("PG::UndefinedTable").and include("bin/rails db:migrate")
    ensure
      KeysRecord.connection.execute("ALTER TABLE away RENAME TO cells_outstanding_leases")
    end
  end

  describe "leasehold:verify" do
    it "exits with 0 if all models are verified" do
      insert_users("alice")
      expect(rake("leasehold:verify", "User")).to match([0, /\AUser\n.*^  created +2$/m, ""])
      expect(rake("leasehold:verify").first).to eq(0)
    end

    it "suggests a model for an unknown name, and lists all of them" do
      { "user" => "is not a model: did you mean `User`? ", "Usr" => "is not a model: did you mean `User`? ",
        "Invoice" => "is not a model: ", "ApplicationRecord" => "claims nothing: " }.each do |name, message|
        code, _, errors = rake("leasehold:verify", name)

        expect(errors).to eq("not verified: `#{name}` #{message}models with claims: Email, Key, Route, User\n")
        expect(code).to eq(2)
      end
    end

    it "exits with a code of its own if another run verifies the model, alone or among others" do
      Leasehold::Verifier::Progress.new(User, User.connection).exclusively do
        expect(rake("leasehold:verify", "User")).to eq(
          [4, "User\n", "not verified: another run verifies `User`, or gives up claims of its table\n  run the task again after that run has ended\n"]
        )
        code, output, errors = rake("leasehold:verify")
        expect([code, errors]).to eq([4, "not verified: `User`; the reasons are above\n"])
        expect(output).to include("User\n  another run verifies `User`, or gives up claims of its table\n").and include("Route\n  dry run")
      end
    end

    it "reports an unreachable server" do
      insert_users("alice")
      server.kill
      code, _, errors = rake("leasehold:verify", "User")

      expect(errors).to match(/\Anot verified: Leasehold::Error::Unavailable: .*\n  check that the claims server runs at/)
      expect(code).to eq(5)
    end

    it "verifies each named model" do
      code, output, = rake("leasehold:verify", "User", "Email", DRY_RUN: "1")

      expect(code).to eq(0)
      expect(output.scan(/^\S+ \(dry run\)$/)).to eq(["User (dry run)", "Email (dry run)"])
    end

    it "accepts `no` and `off` as false" do
      User.create!(username: "alice")
      User.delete_all
      %w[no OFF].each { |word| expect(rake("leasehold:verify", "User", ALLOW_EMPTY: word).first).to eq(2) }
    end

    it "refuses an invalid number of findings" do
      %w[abc -1 1.5].each do |number|
        expect(rake("leasehold:verify", "User", SAMPLES: number)).to eq(
          [2, "", "`SAMPLES` is `#{number}`: set it to a number of findings, for example `100`\n"]
        )
      end
    end

    it "prints the first findings of each outcome, and the number of omitted ones" do
      insert_users(*Array.new(30) { |number| "user-#{number}" })
      code, output, = rake("leasehold:verify", "User", DRY_RUN: "1")

      expect(code).to eq(0)
      expect(output.scan(/outcome=to_create .*value_hash=/).size).to eq(10)
      expect(output).to match(/^  and 50 more with outcome=to_create: set `SAMPLES` to show more$/)
      expect(rake("leasehold:verify", "User", DRY_RUN: "1", SAMPLES: "100")[1].scan(/outcome=to_create .*value_hash=/).size).to eq(60)
    end
  end
end
