"""Tests of `leasehold-py sweep`: results are reproducible and follow the parameters."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from support.command import answer, run

from leasehold.cli._sweep import sweep
from leasehold.errors import MisconfiguredError

SMALL = ["sweep", "--worlds", "4", "--world-seconds", "400", "--latency-ms", "100", "--crash-rate", "8"]


def test_results_do_not_depend_on_the_number_of_threads_or_the_output_format(tmp_path: Path) -> None:
    path = tmp_path / "sweep.parquet"
    alone = answer(*SMALL, "--threads", "1", "--parquet", str(path))
    assert answer(*SMALL, "--threads", "4") == alone
    assert pyarrow.parquet.read_table(path).to_pylist() == alone
    assert answer(*SMALL, "--seed", "100") != alone


def test_a_larger_threshold_recovers_later_and_breaks_no_promise() -> None:
    soon, late = answer(*SMALL, "--stale-after-seconds", "10,80")
    assert soon["recover_median_seconds"] < late["recover_median_seconds"]
    assert soon["conflicts_per_lease"] < late["conflicts_per_lease"]
    assert (soon["violations"], late["violations"]) == (0, 0)


def test_fewer_crashes_leave_fewer_leases_to_reconcilers() -> None:
    none, many = answer(*SMALL, "--stale-after-seconds", "30", "--crash-rate", "0,32")
    assert none["recovered"] < many["recovered"]


def test_the_plot_is_a_png_file(tmp_path: Path) -> None:
    path = tmp_path / "sweep.png"
    ended = run(*SMALL, "--plot", str(path))
    assert ended.returncode == 0, ended.stderr
    assert "conflicts" in ended.stdout
    assert path.read_bytes().startswith(b"\x89PNG")


def test_missing_directories_and_libraries_raise_before_any_world_is_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Playing these worlds would take years. The command must fail before it plays the first of them.
    endless = ["sweep", "--worlds", "100000", "--world-seconds", "100000000"]
    for option in ("--plot", "--parquet"):
        ended = run(*endless, option, str(tmp_path / "absent" / "sweep"))
        assert (ended.returncode, "absent" in ended.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MisconfiguredError, match="matplotlib"):
        sweep(worlds=100_000, world_seconds=1e8, plot=tmp_path / "sweep.png")


def test_an_invalid_list_is_refused() -> None:
    ended = run("sweep", "--latency-ms", "fast")
    assert (ended.returncode, "--latency-ms" in ended.stderr) == (2, True)
