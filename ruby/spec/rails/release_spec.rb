# frozen_string_literal: true

require "rails_helper"

RSpec.describe "the release of an attribute's claims", :rails do
  before { %w[alice bob].each { |name| User.create!(username: name) } }

  after { Leasehold.configuration.feature_enabled { true } }

  def disable
    Leasehold.configuration.feature_enabled { |flag| flag != :cells_claims_users }
  end

  def console(dry_run:)
    output = StringIO.new
    Leasehold::Console.new(output: output, dry_run: dry_run).release("User", "username")
    output.string
  end

  it "counts the claims in a dry run, and gives up those of this attribute alone" do
    disable
    as_cell(2) do
      Leasehold.configuration.feature_enabled { true }
      User.create!(username: "theirs")
      disable
    end

    expect(console(dry_run: true)).to eq("claims to give up: 2; set `DRY_RUN=0` to give them up\n")
    expect(claimed(User, :username)).to eq(%w[alice bob])
    expect(console(dry_run: false)).to eq("claims given up: 2\n")
    expect([claimed(User, :username), claimed(User, :id).size]).to eq([[], 2])
    expect(outstanding_leases + lease_rows).to be_empty
    as_cell(2) { expect(claimed(User, :username)).to eq(["theirs"]) }
  end

  it "is refused while saves claim the attribute, also in a dry run" do
    [true, false].each do |dry_run|
      expect { console(dry_run: dry_run) }
        .to raise_error(Leasehold::Console::Failed, /claim the bucket type of `username`: switch off `cells_claims_users` first/) { |error|
          expect(error.status).to eq(2)
        }
    end
    expect(claimed(User, :username)).to eq(%w[alice bob])
  end

  it "lists the attributes if none is named" do
    expect { Leasehold::Console.new(output: StringIO.new, dry_run: true).release("User", nil) }
      .to raise_error(Leasehold::Console::Failed, /not released: .*use one of `id`, `username`/)
  end

  { "the base class" => ["User", :cells_claims_users], "another subclass" => ["Guest", :cells_claims_guests] }
    .each do |kind, (name, enabled)|
    it "is refused for a class while saves of #{kind} of its table claim the bucket type (STI)" do
      { "Admin" => :cells_claims_admins, "Guest" => :cells_claims_guests }.each do |subclass, flag|
        stub_const(subclass, Class.new(User) { cells_claims_attribute :username, type: :USERNAMES, feature_flag: flag })
      end
      Leasehold.configuration.feature_enabled { |flag| [:cells_unique_claims, enabled].include?(flag) }

      expect { Leasehold::Release.new(Admin, :username).run }.to raise_error(
        Leasehold::Error::Misconfigured, /saves of `#{name}` claim the bucket type of `username`: switch off `#{enabled}` first/
      )
      expect(claimed(User, :username)).to eq(%w[alice bob])
    end
  end

  it "is refused for an attribute that is not claimed, and beside a verification" do
    disable
    expect { Leasehold::Release.new(User, :created_at) }.to raise_error(ArgumentError, /use one of `id`, `username`/)

    other = PG.connect(Support::PostgresCluster.instance.url(Support::Cell[1].database))
    other.exec("SELECT pg_advisory_lock(hashtextextended('leasehold verification of User', 0))")
    expect { console(dry_run: false) }.to raise_error(Leasehold::Console::Failed, /a run verifies `User`/) { |error|
      expect(error.status).to eq(4)
    }
  ensure
    other&.close
  end

  describe "beside a verification of another class of the table (STI)" do
    before { %w[Admin Guest].each { |name| stub_const(name, Class.new(User)) } }

    # Verifies the model in another thread, and runs the block after the run's first page.
    def verifying(model)
      started, finish = Array.new(2) { Queue.new }
      run = Thread.new do
        Leasehold::Verifier.new(model, dry_run: true) { started.push(true) && finish.pop }.run
      ensure
        started.close
      end
      started.pop
      yield
    ensure
      finish.close
      run.join
    end

    { "the base class" => %w[User Admin], "a subclass" => %w[Admin User], "another subclass" => %w[Admin Guest] }
      .each do |kind, (verified, released)|
      it "gives up nothing until the run has ended: of #{kind}" do
        verifying(verified.constantize) do
          disable
          expect(Leasehold::Release.new(released.constantize, :username).run).to be_nil
          expect(claimed(User, :username)).to eq(%w[alice bob])
        end
        expect(Leasehold::Release.new(released.constantize, :username).run).to eq(2)
      end
    end

    it "runs beside the verification of another table; verifications of two classes of one table run at once" do
      verifying(User) do
        expect(Leasehold::Verifier.new(Admin, dry_run: true).run).to include(finished: true)
        Leasehold.configuration.feature_enabled { |flag| flag != :cells_claims_routes }
        expect(Leasehold::Release.new(Route, :path).run).to eq(0)
      end
    end
  end

  it "tells that an update was rolled back if the commit guard refuses it (R04), and the next run gives the claims up" do
    disable
    table = Leasehold::LeaseTable
    late = Module.new { def clock_and_session = ["2001-01-01", *super.drop(1)] }
    stub_const("Leasehold::LeaseTable", Class.new(table) { prepend late })
    expect { console(dry_run: false) }.to raise_error(Leasehold::Console::Failed) { |error|
      expect(error.status).to eq(4)
      expect(error.message).to eq(<<~TEXT.chomp)
        not released: an update of the claims of `username` took longer than the commit guard allows, and was rolled back
          run the task again; if this persists, check the load of the server and of the database
      TEXT
    }
    expect(claimed(User, :username)).to eq(%w[alice bob])
    expect(outstanding_leases + lease_rows).to be_empty

    stub_const("Leasehold::LeaseTable", table)
    expect(console(dry_run: false)).to eq("claims given up: 2\n")
  end

  it "goes on past claims under another lease, and reports them" do
    lease = Leasehold.client.begin_update(destroys: User.find_by!(username: "alice").cells_claims)
    disable

    expect { console(dry_run: false) }.to raise_error(Leasehold::Console::Failed, /Busy/)
    expect(claimed(User, :username)).to eq(["alice"])
    Leasehold.client.rollback_update(lease.uuid)
    expect(console(dry_run: false)).to eq("claims given up: 1\n")
  end
end
