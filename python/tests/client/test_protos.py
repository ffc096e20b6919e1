"""The generated code is up to date with the wire contract."""

from __future__ import annotations

import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from leasehold import BucketType, SourceType, SubjectType
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import record_pb2

PYTHON = Path(__file__).resolve().parents[2]


def read(directory: Path) -> dict[str, str]:
    paths = [path for path in directory.rglob("*.py*") if path.suffix in (".py", ".pyi")]
    return {str(path.relative_to(directory)): path.read_text() for path in paths}


def test_the_committed_code_equals_the_generated_code(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(PYTHON / "tools" / "protos.py"), str(tmp_path)], check=True)
    assert read(PYTHON / "leasehold" / "_proto") == read(tmp_path), "run `python tools/protos.py`"


@pytest.mark.parametrize(
    ("names", "prefix", "enumeration"),
    [
        (BucketType, "", record_pb2.Bucket.Type),
        (SubjectType, "", record_pb2.Subject.Type),
        (SourceType, "RAILS_TABLE_", record_pb2.Source.Type),
    ],
)
def test_enum_members_equal_those_of_the_contract(names: type[IntEnum], prefix: str, enumeration: Any) -> None:
    contract = {name: number for name, number in enumeration.items() if number}
    assert {f"{prefix}{member.name}": member.value for member in names} == contract
