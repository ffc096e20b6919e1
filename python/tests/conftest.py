"""Settings and fixtures of all tests."""

from __future__ import annotations

import hypothesis

# Test machines are busy, so a slow example is not a failure: `deadline=None`.
hypothesis.settings.register_profile("leasehold", deadline=None, print_blob=True)
hypothesis.settings.load_profile("leasehold")

pytest_plugins = ["support.fixtures", "support.cli_fixtures"]
