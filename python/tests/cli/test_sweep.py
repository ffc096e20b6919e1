"""Tests of `leasehold-py sweep`: results are reproducible and follow the parameters."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from support.command import answer, interrupted_on_terminal, run

from leasehold.cli._sweep import SweepResult, figure_of, sweep
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


def test_ctrl_c_prints_and_writes_the_results_of_the_finished_worlds(tmp_path: Path) -> None:
    path, plot = tmp_path / "sweep.parquet", tmp_path / "sweep.png"
    # The world of the first latency is finished soon. That of the second one has ten million events.
    sizes = ["--worlds", "1", "--threads", "1", "--world-seconds", "10000", "--stale-after-seconds", "10", "--crash-rate", "8"]
    files = ["--parquet", str(path), "--plot", str(plot)]
    code, shown, said = interrupted_on_terminal("1 of 2 worlds", "sweep", *sizes, "--latency-ms", "1000,1", *files, "--json")
    (result,) = [json.loads(line) for line in shown.splitlines()]
    assert (code, result["step_ms"], result["worlds"]) == (130, 1000, 1)
    assert result["leases"] > 0
    assert "stopped: 1 of 2 worlds were finished" in said
    assert "Traceback" not in said
    assert pyarrow.parquet.read_table(path).to_pylist() == [result]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_plot_has_a_title_units_and_a_legend_of_colours_and_line_styles() -> None:
    results = [result_of(step_ms, crash_rate) for step_ms in (50.0, 200.0) for crash_rate in (2, 8, 32)]
    figure = figure_of(results)
    assert "48 simulated worlds" in figure.get_suptitle()
    conflicts, recovery = figure.axes
    assert "per lease" in conflicts.get_ylabel()
    assert all("(s)" in label for label in (conflicts.get_xlabel(), recovery.get_xlabel(), recovery.get_ylabel()))
    for axes in (conflicts, recovery):
        looks = [(line.get_color(), line.get_linestyle()) for line in axes.get_lines()]
        assert (len(set(looks)), len({colour for colour, _ in looks}), len({style for _, style in looks})) == (6, 2, 3)
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["latency 50 ms", "latency 200 ms", "crash rate 2", "crash rate 8", "crash rate 32"]


def result_of(step_ms: float, crash_rate: int) -> SweepResult:
    return SweepResult(
        stale_after_seconds=10,
        step_ms=step_ms,
        crash_rate=crash_rate,
        worlds=8,
        leases=10,
        conflicts=5,
        conflicts_per_lease=0.5,
        lost=0,
        recovered=1,
        recover_median_seconds=12.0,
        recover_max_seconds=13.0,
        violations=0,
    )


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
    endless = ["sweep", "--worlds", "4000", "--world-seconds", "500000"]
    for option in ("--plot", "--parquet"):
        ended = run(*endless, option, str(tmp_path / "absent" / "sweep"))
        assert (ended.returncode, "absent" in ended.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MisconfiguredError, match="matplotlib"):
        sweep(worlds=4000, world_seconds=5e5, plot=tmp_path / "sweep.png")


def test_an_invalid_list_is_refused() -> None:
    ended = run("sweep", "--latency-ms", "fast")
    assert (ended.returncode, "--latency-ms" in ended.stderr) == (2, True)
