# frozen_string_literal: true

# Run by `gem install` if no precompiled gem fits this platform: writes a Makefile that builds the
# extension with cargo. Needs no other gem.

abort "leasehold: cargo is missing: install Rust, then try again" unless system("cargo", "--version", out: File::NULL)

require "rbconfig"

# Cargo builds in the directory of this variable if it is set, and the build is kept. Otherwise the build is
# removed after the installation.
kept = ENV.fetch("CARGO_TARGET_DIR", nil)
target = kept || "target"

so = "leasehold_ruby.#{RbConfig::CONFIG.fetch("DLEXT")}"
prefix = RbConfig::CONFIG.fetch("host_os").include?("darwin") ? ["dylib"] : ["so"]

File.write("Makefile", <<~MAKEFILE)
  # RubyGems passes the directory to install into.
  sitearchdir = #{RbConfig::CONFIG.fetch("sitearchdir")}

  all:
  \tRUBY="#{RbConfig.ruby}" CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=debuginfo \\
  \t  cargo build --release --locked --target-dir "#{target}"

  install: all
  \tmkdir -p "$(DESTDIR)$(sitearchdir)/leasehold"
  \tcp "#{target}/release/libleasehold_ruby.#{prefix.first}" "$(DESTDIR)$(sitearchdir)/leasehold/#{so}"
  \t#{kept ? ":" : "rm -rf target"}

  clean:
  \trm -rf target

  .PHONY: all install clean
MAKEFILE
