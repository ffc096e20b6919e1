# frozen_string_literal: true

require "tmpdir"

RSpec.describe Support::InstalledExtension do
  around { |example| Dir.mktmpdir { |directory| Dir.chdir(directory) { example.run } } }

  it "is refused if it is missing, or differs from the file that `LEASEHOLD_EXTENSION` names" do
    expect { described_class.check("installed") }.to raise_error(/\Athe extension is not built: run `rake compile:test`/)

    File.write("installed", "old")
    File.write("wanted", "new")
    expect { described_class.check("installed", wanted: "wanted") }.to raise_error(/is not the one that `LEASEHOLD_EXTENSION` names/)

    FileUtils.cp("wanted", "installed")
    expect { described_class.check("installed", wanted: "wanted") }.not_to output.to_stderr
  end

  it "is used with a warning if a source is newer" do
    File.write("installed", "")
    File.write("lib.rs", "")
    File.utime(1, 1, "installed")
    expect { described_class.check("installed", wanted: nil, sources: ["lib.rs"]) }
      .to output("warning: the extension is older than `lib.rs`: run `rake compile:test` in `ruby`, or `rake spec`\n").to_stderr

    File.utime(0, 0, "lib.rs")
    expect { described_class.check("installed", wanted: nil, sources: ["lib.rs"]) }.not_to output.to_stderr
  end
end
