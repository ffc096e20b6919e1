"""`leasehold-py sweep`: the same table for the same seeds, and what makes things worse shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
from support.command import answer, run

SMALL = ["sweep", "--worlds", "4", "--world-seconds", "400", "--latency-ms", "100", "--crash-rate", "8"]


def test_a_sweep_is_the_same_over_any_number_of_threads_and_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "sweep.parquet"
    alone = answer(*SMALL, "--threads", "1", "--parquet", str(path))
    assert answer(*SMALL, "--threads", "4") == alone
    assert pyarrow.parquet.read_table(path).to_pylist() == alone
    assert answer(*SMALL, "--seed", "100") != alone


def test_later_thresholds_recover_later_and_nothing_is_broken() -> None:
    soon, late = answer(*SMALL, "--stale-after-seconds", "10,80")
    assert soon["recover_median_seconds"] < late["recover_median_seconds"]
    assert soon["conflicts_per_lease"] < late["conflicts_per_lease"]
    assert (soon["violations"], late["violations"]) == (0, 0)


def test_without_crashes_reconcilers_have_less_to_do() -> None:
    none, many = answer(*SMALL, "--stale-after-seconds", "30", "--crash-rate", "0,32")
    assert none["recovered"] < many["recovered"]


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "sweep.png"
    ended = run(*SMALL, "--plot", str(path))
    assert ended.returncode == 0, ended.stderr
    assert "conflicts" in ended.stdout
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_list_that_is_none_is_refused() -> None:
    ended = run("sweep", "--latency-ms", "fast")
    assert (ended.returncode, "--latency-ms" in ended.stderr) == (2, True)
