# frozen_string_literal: true

module Support
  # Reads golden vectors: scenarios of steps, each with its claims and its expected answer. Skips
  # everything but claims.
  class Vectors
    DIRECTORY = File.expand_path("../../../tests/vectors", __dir__)
    TOKEN = /"(?:\\.|[^"\\])*"|\S+/
    ESCAPES = { "n" => "\n", "r" => "\r", "t" => "\t", "0" => "\0", '"' => '"', "\\" => "\\" }.freeze

    Step = Struct.new(:verb, :claims, :answer, keyword_init: true)
    # A claim in a step: its list (`create`, `destroy`, `get`), its bucket type's number and its
    # value.
    NamedClaim = Struct.new(:list, :bucket_type, :value)

    # @return [Hash{String => Array<Step>}] steps by the scenario's heading
    def self.read(name)
      text = File.read(File.join(DIRECTORY, "#{name}.txt"), encoding: "UTF-8")
      text.split(/^## /).drop(1).to_h do |scenario|
        heading, body = scenario.split("\n", 2)
        [heading, steps(body)]
      end
    end

    def self.steps(body)
      blocks = body.gsub(/^#.*\n/, "").split("\n\n").map(&:strip).reject(&:empty?)
      blocks.map do |block|
        request, answer = block.split(/^----\n/)
        Step.new(verb: request[/\A\w+/], claims: claims(request), answer: answer)
      end
    end

    def self.claims(text)
      tokens = text.scan(TOKEN)
      tokens.each_cons(3).filter_map do |list, type, value|
        NamedClaim.new(list, number(type), unquote(value)) if %w[create destroy get].include?(list) && value.start_with?('"')
      end
    end

    # @return [Array<Array(Integer, String)>] bucket type and value of the claims in an answer
    def self.claims_in_answer(answer)
      answer.lines.filter_map do |line|
        type, value = line.sub(/\Acell \d+:/, "").scan(TOKEN)
        [number(type), unquote(value)] if value&.start_with?('"')
      end
    end

    def self.number(type)
      types = Leasehold::Contract::Gitlab::Cells::TopologyService::Claims::V1::Bucket::Type
      type[/\Abucket#(\d+)\z/, 1]&.to_i || types.const_get(type)
    end

    def self.unquote(token)
      token[1..-2].gsub(/\\u\{(\h+)\}|\\(.)/) { $1 ? [$1.hex].pack("U") : ESCAPES.fetch($2) }
    end

    private_class_method :steps, :claims, :number, :unquote
  end
end
