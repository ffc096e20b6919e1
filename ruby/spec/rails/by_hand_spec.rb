# frozen_string_literal: true

require "rails_helper"
require "open3"
require "rbconfig"

# The tasks as a shell runs them: what they print, and how they end.
RSpec.describe "a task", :rails do
  # @return [Array(Integer, String, String)] the exit code, standard output and standard error
  def rake(task, *arguments, **environment)
    script = "require 'rake'; Rails.application.load_tasks; Rake::Task[ARGV.shift].invoke(*ARGV)"
    variables = Support::Cell[1].environment(server.address).merge(environment.transform_keys(&:to_s))
    output, errors, status = Open3.capture3(
      variables, RbConfig.ruby, "-r", Support::CellProcess::ENVIRONMENT, "-e", script, task, *arguments
    )
    [status.exitstatus, output, errors]
  end

  def insert_users(*names)
    User.insert_all(names.map { |name| { username: name, created_at: 1.day.ago, updated_at: 1.day.ago } })
  end

  describe "leasehold:reconcile" do
    it "ends with 0 where all is settled" do
      expect(rake("leasehold:reconcile")).to match([0, /^  failed +0$/, ""])
    end

    it "says that the server can't be reached, and where it was looked for" do
      server.kill
      code, output, errors = rake("leasehold:reconcile")

      expect(code).to eq(5)
      expect(output).to match(/^  incomplete +true$/)
      expect(errors.lines(chomp: true)).to match([
        "not all is reconciled, the next run tries again:", /\A  list leases: Leasehold::Error::Unavailable: .*connect/,
        "  see that the claims server runs, and is at `#{server.address}`; then run it again"
      ])
    end

    it "says that the server refuses the cell's certificate, and what to check" do
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

    it "says which setting is wrong before anything is asked" do
      code, output, errors = rake("leasehold:reconcile", LEASEHOLD_ADDRESS: "nowhere")

      expect([code, output]).to eq([2, ""])
      expect(errors).to eq("Leasehold::Error::Misconfigured: `address` is \"nowhere\": say host and port of the claims server\n")
    end

    it "says that the migration has not run" do
      KeysRecord.connection.execute("ALTER TABLE cells_outstanding_leases RENAME TO away")
      code, _, errors = rake("leasehold:reconcile")

      expect(code).to eq(1)
      expect(errors).to include("PG::UndefinedTable").and include("bin/rails db:migrate")
    ensure
      KeysRecord.connection.execute("ALTER TABLE away RENAME TO cells_outstanding_leases")
    end
  end

  describe "leasehold:verify" do
    it "ends with 0 where all is verified" do
      insert_users("alice")
      expect(rake("leasehold:verify", "User")).to match([0, /\AUser\n.*^  created +2$/m, ""])
      expect(rake("leasehold:verify").first).to eq(0)
    end

    it "says which model is meant, and which there are" do
      { "user" => "is no model: did you mean `User`? ", "Usr" => "is no model: did you mean `User`? ",
        "Invoice" => "is no model: ", "ApplicationRecord" => "claims nothing: " }.each do |name, message|
        code, _, errors = rake("leasehold:verify", name)

        expect(errors).to eq("not verified: `#{name}` #{message}those that claim: Email, Key, Route, User\n")
        expect(code).to eq(2)
      end
    end

    it "ends with a code of its own where another run is under way, of one model or among all" do
      Leasehold::Verifier::Progress.new(User).exclusively do
        expect(rake("leasehold:verify", "User")).to eq(
          [4, "User\n", "not verified: another run for `User` is under way\n  run it again once that has ended\n"]
        )
        code, output, errors = rake("leasehold:verify")
        expect([code, errors]).to eq([4, "not verified: `User`; see above why\n"])
        expect(output).to include("User\n  another run for `User` is under way\n").and include("Route\n  dry run")
      end
    end

    it "says that the server can't be reached" do
      insert_users("alice")
      server.kill
      code, _, errors = rake("leasehold:verify", "User")

      expect(errors).to match(/\Anot verified: Leasehold::Error::Unavailable: .*\n  see that the claims server runs, and is at/)
      expect(code).to eq(5)
    end

    it "verifies each model that is named" do
      code, output, = rake("leasehold:verify", "User", "Email", DRY_RUN: "1")

      expect(code).to eq(0)
      expect(output.scan(/^\S+ \(dry run\)$/)).to eq(["User (dry run)", "Email (dry run)"])
    end

    it "takes a no for a no" do
      User.create!(username: "alice")
      User.delete_all
      %w[no OFF].each { |word| expect(rake("leasehold:verify", "User", ALLOW_EMPTY: word).first).to eq(2) }
    end

    it "refuses a number of findings that is none" do
      %w[abc -1 1.5].each do |number|
        expect(rake("leasehold:verify", "User", SAMPLES: number)).to eq(
          [2, "", "`SAMPLES` is `#{number}`: say how many findings to show, such as `100`\n"]
        )
      end
    end

    it "shows the first findings of each outcome, and how many more there are" do
      insert_users(*Array.new(30) { |number| "user-#{number}" })
      code, output, = rake("leasehold:verify", "User", DRY_RUN: "1")

      expect(code).to eq(0)
      expect(output.scan(/outcome=to_create .*value_hash=/).size).to eq(10)
      expect(output).to match(/^  and 50 more with outcome=to_create: `SAMPLES` says how many to show$/)
      expect(rake("leasehold:verify", "User", DRY_RUN: "1", SAMPLES: "100")[1].scan(/outcome=to_create .*value_hash=/).size).to eq(60)
    end
  end
end
