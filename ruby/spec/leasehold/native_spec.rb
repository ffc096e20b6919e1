# frozen_string_literal: true

require "leasehold/client"

RSpec.describe Leasehold::Native do
  def rejection
    yield
    raise "no error was raised"
  rescue Leasehold::Error => e
    e
  end

  describe "canonical forms" do
    # Returns the canonical forms of a step's claims, or the code of their rejection.
    def canonical_forms(step)
      canonical = step.claims.map { |claim| described_class.canonical_form(claim.bucket_type, claim.value) }
      { forms: step.claims.map(&:bucket_type).zip(canonical) }
    rescue Leasehold::Error::Invalid => e
      { code: e.code }
    end

    def expect_refusals(step)
      expected = step.answer.scan(/create_records\[(\d+)\] \w+ (VALUE_NOT_ALLOWED)/)
      refused = step.claims.each_index.filter_map do |position|
        claim = step.claims[position]
        [position.to_s, rejection { described_class.canonical_form(claim.bucket_type, claim.value) }.code]
      end
      expect(refused).to eq(expected)
    end

    Support::Vectors.read("canonical_forms").each do |heading, steps|
      it "equal the golden vector: #{heading}" do
        held = []
        steps.each do |step|
          result = canonical_forms(step)
          case step.answer
          when /\Arejected (VALUE_NOT_ALLOWED|INVALID_UPDATE)/
            expect(result[:code]).to eq($1)
            expect_refusals(step) if step.verb == "begin"
          when /\Arejected CLAIM_(BUSY|TAKEN)/ then expect(result[:forms] - held).to be_empty
          when /\Abegun/
            creates = step.claims.zip(result[:forms]).filter_map { |claim, form| form if claim.list == "create" }
            expect(creates & held).to be_empty
            expect(creates.uniq).to eq(creates)
            held |= creates
          when /\Acell/
            shown = Support::Vectors.claims_in_answer(step.answer).map { |type, value| [type, described_class.canonical_form(type, value)] }
            expect(shown).to eq(result[:forms])
          end
        end
      end
    end
  end

  describe ".check_batch" do
    it "accepts claims that can be begun, as Structs and as Hashes (B06)" do
      expect(described_class.check_batch([username("alice")], [username("ALICE").to_h])).to be_nil
      expect(described_class.check_batch([], [{ bucket_type: 4, bucket_value: "bob" }])).to be_nil
    end

    it "lists every claim that cannot be begun (B07, B10, B12, B14)" do
      error = rejection { described_class.check_batch([username("a"), username("a b"), username("A")], [username(" ")]) }
      expect(error).to be_a(Leasehold::Error::Invalid)
      expect(error.code).to eq("INVALID_UPDATE")
      expect(error.rejected.map(&:to_a)).to eq(
        [[:create, 1, 4, "VALUE_NOT_ALLOWED"], [:create, 2, 4, "INVALID_UPDATE"], [:destroy, 0, 4, "VALUE_NOT_ALLOWED"]]
      )
      expect(rejection { described_class.check_batch([], []) }.rejected).to be_empty
    end

    it "returns the same errors as the server" do
      bad = [username("fine"), username("not fine"), username("fine"), username("x" * 1025)]
      Support::ClaimsServer.run do |server|
        remote = rejection { client_of(server.address).begin_update(creates: bad) }
        local = rejection { described_class.check_batch(bad, []) }
        expect(local.rejected).to match_array(remote.rejected)
        expect([local.class, local.code, local.message]).to eq([remote.class, remote.code, remote.message])
      end
    end
  end

  describe ".encode_source_id" do
    it "keeps the order of keys" do
      keys = [0, 1, 255, 256, 65_536, (1 << 63) - 1]
      encoded = keys.map { |key| described_class.encode_source_id(key) }
      expect(encoded).to eq(encoded.sort)
      expect(encoded.map { |bytes| bytes.unpack1("Q>") }).to eq(keys)
      expect(encoded.map(&:encoding)).to all(eq(Encoding::BINARY))
    end

    it "encodes a UUID as its bytes, and other text unchanged" do
      expect(described_class.encode_source_id("01a1fefb-0383-7360-95c3-3b4e0d5dfab0").bytesize).to eq(16)
      expect(described_class.encode_source_id("größe")).to eq("größe".b)
    end

    it "refuses an invalid key" do
      expect(rejection { described_class.encode_source_id(-1) }).to be_a(Leasehold::Error::Invalid)
      expect(rejection { described_class.encode_source_id("") }).to be_a(Leasehold::Error::Invalid)
      expect(rejection { described_class.encode_source_id("x" * 129) }.code).to eq("LIMIT_EXCEEDED")
      expect { described_class.encode_source_id(nil) }.to raise_error(TypeError)
      expect { described_class.encode_source_id(1 << 70) }.to raise_error(RangeError)
    end
  end

  it "raises an exception for a value that is not text" do
    expect { described_class.canonical_form(4, "\xff".b) }.to raise_error(EncodingError)
    expect { described_class.canonical_form(4, nil) }.to raise_error(TypeError)
    expect(described_class.canonical_form(4, "GRÖSSE".encode("ISO-8859-1"))).to eq("grösse")
  end

  it "converts a panic to an exception, with and without Ruby's lock" do
    [false, true].each do |without_lock|
      expect { described_class.panic(without_lock) }.to output(/on purpose/).to_stderr_from_any_process.and(
        raise_error(Leasehold::Error::Internal, /panicked.*on purpose/)
      )
    end
    expect(described_class.canonical_form(4, "Alice")).to eq("alice")
  end
end
