"""Tests of the peak memory of verification with large dump files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

PROGRAM = """
import sys
from pathlib import Path
from leasehold import BucketType, SubjectType
from leasehold.tables.files import parquet_table
from leasehold.verification import ClaimColumns, TableColumns

columns = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id")])
parquet_table(sys.argv[1], columns).check()
status = Path("/proc/self/status").read_text(encoding="ascii")
print(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")))
"""


def peak_megabytes(path: Path, rows: int) -> float:
    """Return the peak memory in megabytes of a process that reads an uncompressed Parquet file with one row group."""
    names = pa.array([f"user-{key:0200}" for key in range(rows)])
    pyarrow.parquet.write_table(
        pa.table({"id": range(rows), "username": names}), path, row_group_size=rows, compression="none", use_dictionary=False
    )
    ended = subprocess.run([sys.executable, "-I", "-c", PROGRAM, path], capture_output=True, text=True, check=True)
    return int(ended.stdout) / 1024


def test_memory_is_bounded_for_a_parquet_file_with_one_row_group(tmp_path: Path) -> None:
    # The two files have 60 MB and 300 MB. The buffers of readers and allocators differ by tens of MB between machines.
    few, many = (peak_megabytes(tmp_path / "users.parquet", rows) for rows in (300_000, 1_500_000))
    assert many < few + 100
