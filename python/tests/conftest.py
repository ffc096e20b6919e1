"""What all tests share."""

from __future__ import annotations

import hypothesis

# Machines that test are busy: what takes long there is not wrong.
hypothesis.settings.register_profile("leasehold", deadline=None, print_blob=True)
hypothesis.settings.load_profile("leasehold")

pytest_plugins = ["support.fixtures", "support.cli_fixtures"]
