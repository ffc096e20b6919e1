"""Entry point of `python -m leasehold.cli`, which runs the same program as `leasehold-py`."""

from leasehold.cli import main

main()
