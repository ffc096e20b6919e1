"""Entry point of `python -m leasehold.cli`, which is the same as `leasehold-py`."""

from leasehold.cli import main

main()
