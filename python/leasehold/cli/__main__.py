"""`python -m leasehold.cli` is `leasehold-py`."""

from leasehold.cli import main

main()
