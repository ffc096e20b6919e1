"""Settings and fixtures that all tests share."""

from __future__ import annotations

import hypothesis

# No deadline per example (`deadline=None`): on a busy machine, a slow example is not a failure.
hypothesis.settings.register_profile("leasehold", deadline=None, print_blob=True)
hypothesis.settings.load_profile("leasehold")

pytest_plugins = ["support.fixtures", "support.cli_fixtures"]
