# frozen_string_literal: true

require "rails_helper"
require "leasehold/rspec"

# The guide's examples, as they stand there, in transactional tests as an application has them.
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

  it "run without a server too" do
    stub_claims_server
    server.kill

    expect(begun_claims { User.create!(username: "alice") }.dig(0, 0).map(&:bucket_value)).to include("alice")
  end
end
