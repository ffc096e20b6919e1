# frozen_string_literal: true

# Run by `gem install` if no precompiled gem fits this platform: writes a Makefile that builds the
# extension with cargo. Needs no other gem.

abort "leasehold: cargo is missing: install Rust, then try again" unless system("cargo", "--version", out: File::NULL)

require "rbconfig"

# If `CARGO_TARGET_DIR` is set, cargo builds in that directory and the build is kept. Otherwise the build is
# removed after the installation.
kept = ENV.fetch("CARGO_TARGET_DIR", nil)
target = kept || "target"

so = "leasehold_ruby.#{RbConfig::CONFIG.fetch("DLEXT")}"
host = RbConfig::CONFIG.fetch("host_os")
suffix = host.include?("darwin") ? "dylib" : "so"

# The flags that an extension needs beyond the defaults of the Rust compiler. On macOS the functions of Ruby
# are found when Ruby loads the extension. On musl a library must link to the C library dynamically
# (doc.rust-lang.org/reference/linkage.html).
flags = case host
        when /darwin/ then "-C link-arg=-Wl,-undefined,dynamic_lookup"
        when /musl/ then "-C target-feature=-crt-static"
        end
variables = ["CARGO_PROFILE_RELEASE_DEBUG=false", "CARGO_PROFILE_RELEASE_STRIP=debuginfo"]
variables << %(RUSTFLAGS="$$RUSTFLAGS #{flags}") if flags

File.write("Makefile", <<~MAKEFILE)
  # RubyGems passes the directory to install into.
  sitearchdir = #{RbConfig::CONFIG.fetch("sitearchdir")}

  all:
  \tRUBY="#{RbConfig.ruby}" #{variables.join(" ")} \\
  \t  cargo build --release --locked --target-dir "#{target}"

  install: all
  \tmkdir -p "$(DESTDIR)$(sitearchdir)/leasehold"
  \tcp "#{target}/release/libleasehold_ruby.#{suffix}" "$(DESTDIR)$(sitearchdir)/leasehold/#{so}"
  \t#{kept ? ":" : "rm -rf target"}

  clean:
  \trm -rf target

  .PHONY: all install clean
MAKEFILE
