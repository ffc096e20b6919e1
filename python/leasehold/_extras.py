"""The extras of the package: libraries that only some of its parts need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leasehold.errors import MissingExtraError


@contextmanager
def importing(extra: str) -> Iterator[None]:
    """Import libraries of an extra in a `with` block.

    Raises
    ------
    MissingExtraError
        A library is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(error.name or str(error), extra) from error
