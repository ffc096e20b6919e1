#!/bin/sh
# A cargo for maturin that compiles nothing. Where maturin compiles the extension (`cargo rustc`), this program prints the
# messages of a build that compiled it before. maturin runs the program in the variable `CARGO`, and takes the extension's
# path from the last message that names it. The extension's unit tests are an executable of the same name, and cargo prints
# the messages in no fixed order, so those of test builds are left out.
set -eu
case $1 in
  rustc) exec grep -v '"overflow_checks":[a-z]*,"test":true' "$LEASEHOLD_BUILD_MESSAGES" ;;
  *) exec cargo "$@" ;;
esac
