# frozen_string_literal: true

require "rails_helper"
require "leasehold/rspec"

# Runs the guide's examples as they are printed, with transactional tests.
RSpec.describe "shared examples", :rails do
  before do
    Leasehold.configuration.transactional_tests = true
    ActiveRecord::Base.connection.begin_transaction(joinable: false, _lazy: false)
  end

  after { ActiveRecord::Base.connection.rollback_transaction }

  describe "of a model" do
    let(:described_class) { User }

    it_behaves_like "cells claimable model",
                    subject_type: Cells::Claimable::CLAIMS_SUBJECT_TYPE::USER,
                    subject_key: :id,
                    source_type: Cells::Claimable::CLAIMS_SOURCE_TYPE::RAILS_TABLE_USERS,
                    claiming_attributes: %i[id username]
  end

  describe "of a user with an email" do
    subject { User.new(username: "alice", emails: [email]) }

    let(:email) { Email.new(email: "a@example.com") }

    shared_context "with claims records for User" do
      def claims_records(only: {})
        claims_records_for(subject, only: only) + claims_records_for(email, only: only)
      end
    end

    it_behaves_like "creating new claims" do
      include_context "with claims records for User"
    end

    it_behaves_like "deleting existing claims" do
      include_context "with claims records for User"
    end

    it_behaves_like "updating existing claims" do
      let(:transform_attributes) { { username: subject.username.reverse } }
      include_context "with claims records for User"
    end

    context "when the feature flags are off" do
      before { Leasehold.configuration.feature_enabled { |flag| %i[cells_claims_users cells_claims_emails].exclude?(flag) } }
      after { Leasehold.configuration.feature_enabled { true } }

      it_behaves_like "not creating claims"
      it_behaves_like "not deleting claims"
      it_behaves_like "not updating claims" do
        let(:transform_attributes) { { username: "bob" } }
      end
    end
  end

  describe "on failure" do
    def fail_saying(message)
      raise_error(RSpec::Expectations::ExpectationNotMetError, message)
    end

    it "report no update, or more than one" do
      expect { single_update("`save!`") { User.new } }
        .to fail_saying(/expected `save!` to begin one update, but it began 0: check the feature flags/)
      expect { single_update("`save!`") { 2.times { |number| User.create!(username: "user#{number}") } } }
        .to fail_saying(/but it began 2: use one transaction/)
    end

    it "list the claims that differ" do
      claims = User.new(id: 1, username: "alice").cells_claims
      email = Email.new(id: 2, email: "a@example.com", user_id: 1)
      expect { expect_claims(claims, [claims.first, *claims_records_for(email)], "created") }
        .to fail_saying(/\Anot created: EMAILS "a@example.com" for USER 1\ncreated, but not expected: USERNAMES "alice" for USER 1\n`claims_rec/)
    end

    it "ask for `transform_attributes`" do
      expect { required_transform_attributes }.to raise_error(ArgumentError, /`let\(:transform_attributes\)/)
    end

    it "report a record that must be saved first" do
      expect { claims_records_for(User.new(username: "alice")) }
        .to raise_error(Leasehold::Error::Invalid, "`User#id` is nil: save the record first")
    end
  end

  describe "without a server, several times" do
    subject { User.new(username: "alice") }

    before do
      stub_claims_server
      server.kill
    end

    2.times do
      it_behaves_like "creating new claims"
      it_behaves_like "deleting existing claims"
      it_behaves_like "updating existing claims" do
        let(:transform_attributes) { { username: "bob" } }
      end
    end
  end

  it "run without a server" do
    stub_claims_server
    server.kill

    expect(begun_claims { User.create!(username: "alice") }.dig(0, 0).map(&:bucket_value)).to include("alice")
  end
end
