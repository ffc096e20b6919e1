# frozen_string_literal: true

# A thread is killed, timed out or interrupted while the extension calls methods of Ruby.
RSpec.describe "an interrupt of the extension" do
  include Support::EngineCalls

  # No `rescue` of the gem catches it, as none catches the end of a thread.
  let(:interrupt) { Class.new(Exception) }

  # Raises the interrupt in the call of this number that Ruby's own methods get.
  #
  # @return [String, nil] the interrupted method; nil if there are fewer calls
  def interrupt_call(number)
    method = nil
    trace = TracePoint.new(:c_call) do |call|
      # Ruby handles no interrupt while it builds an exception.
      next if call.defined_class == Exception || method || !(number -= 1).negative?

      method = call.method_id.to_s
      raise interrupt
    end
    trace.enable { call_everything }
    method && "#{method} has dropped the interrupt"
  rescue interrupt
    method
  rescue StandardError => e
    "#{method} has turned the interrupt into: #{e.message}"
  end

  it "comes out of whichever call it interrupts" do
    call_everything
    methods = (0..).lazy.map { |number| interrupt_call(number) }.take_while(&:itself).to_a
    expect(methods.grep(/ has /)).to be_empty
    expect(methods).to include("members")
  end

  it "comes out of the methods of a column's name" do
    name = Object.new
    name.define_singleton_method(:hash) { raise Interrupt }
    session = run([]) do |started|
      layout = { key: name, updated_at: "at", claims: [] }
      expect { started.attributes([{ "id" => 1, "at" => old }], now: now, **layout) }.to raise_error(Interrupt)
    end
    expect(session.checkpoint).not_to be_nil
  end
end
