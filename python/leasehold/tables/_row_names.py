"""Names of rows in the errors of a stream that reads a part of a table."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from uuid import UUID

import pyarrow as pa

from leasehold.errors import ColumnError, column_error
from leasehold.tables._keys import UUIDS

# The row of an error, as the extension writes it (`python/src/columns.rs`).
_ROW = re.compile(r"\b(in|at) row (\d+)")
# The extension refuses a row of the batch that it reads, or of the page that ends in that batch.
_KEPT_BATCHES = 4
_MAX_SHOWN = 40


class RowNames:
    """Puts the key of a row in place of its number into the errors of one stream.

    The extension counts from the first row of the stream. A query reads one page of a table, so this number is not the
    position of the row in the table.

    Parameters
    ----------
    key : str
        The key column, which is the first one of the batches.
    kind : str
        The kind of the keys.
    """

    def __init__(self, key: str, kind: str) -> None:
        self._key = key
        self._kind = kind
        self._next = 0
        self._kept: deque[tuple[int, pa.Array]] = deque(maxlen=_KEPT_BATCHES)

    def noted(self, batches: Generator[pa.RecordBatch, None, None]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches, and keep the keys of the last ones."""
        with closing(batches):
            for batch in batches:
                self._kept.append((self._next, batch.column(0)))
                self._next += batch.num_rows
                yield batch

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Raise an error of a column with the key of its row."""
        try:
            yield
        except ColumnError as error:
            # The name of the column may look like a row.
            start = f"the column `{error.column}` "
            problem = error.message.removeprefix(start)
            if problem == error.message:
                raise
            named = _ROW.sub(lambda row: f"{row[1]} {self._name(int(row[2]))}", problem, count=1)
            raise column_error(error.code, error.column, start + named) from None

    def _key_of(self, row: int) -> int | bytes | None:
        key: int | bytes | None = next(
            (keys[row - first].as_py() for first, keys in self._kept if 0 <= row - first < len(keys)), None
        )
        return key

    def _name(self, row: int) -> str:
        key = self._key_of(row)
        if key is None:
            return "a row"
        if isinstance(key, int):
            return f"the row with `{self._key}` {key}"
        # A shown text is no claimed value (V09): these keys are bytes to the extension, which claims no bytes.
        text = str(UUID(bytes=key)) if self._kind == UUIDS else key.decode(errors="replace")
        return f"the row with `{self._key}` `{text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '…'}`"
