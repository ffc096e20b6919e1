"""Tests of `leasehold-py verify` with each kind of table, against the real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from support.claims_server import ClaimsServer
from support.command import COMMAND, answer, environment, interrupted_on_terminal, run
from support.postgres_cluster import PostgresCluster
from support.users import User, as_arrow, claim, in_postgres
from support.waiting import wait_for

from leasehold import BucketType, SourceType
from leasehold.client import Client

ROWS = [User(1, "ann", "ann@example.com"), User(2, "bob"), User(3, "Carol")]
CLAIMED = [User(1, "ann", "ann@example.com"), User(3, "carol"), User(4, "dan")]
NAIVE = pa.schema([("id", pa.int64()), ("username", pa.string()), ("email", pa.string()), ("updated_at", pa.timestamp("us"))])
CLAIMS = ["--claim", "USERNAMES=username,USER=id", "--claim", "EMAILS=email,USER=id", "--source", "users"]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with PostgresCluster() as cluster:
        yield in_postgres(cluster.create_database(), ROWS)


@pytest.fixture(params=["postgres", "csv", "parquet"])
def place(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> str:
    """Return the table argument of the command for each kind of table: a database URL, or the path of a dump."""
    path = tmp_path / f"users.{request.param}"
    if request.param == "csv":
        pyarrow.csv.write_csv(as_arrow(ROWS), path)
    if request.param == "parquet":
        pyarrow.parquet.write_table(as_arrow(ROWS), path)
    return database if request.param == "postgres" else str(path)


def options(server: ClaimsServer, place: str) -> list[str]:
    taken_at = (datetime.now(timezone.utc) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    # The claims of this test are only seconds old. With a threshold of 0 they do not count as recent and are corrected.
    recency = ["--recent-within-seconds", "0", "--updated-at-column", "updated_at", "--taken-at", taken_at]
    return ["verify", place, "--server", server.url, "--cell", "1", *CLAIMS, *recency]


def claimed(client: Client) -> set[str]:
    types = [BucketType.USERNAMES, BucketType.EMAILS]
    return {record.claim.bucket_value for record in client.records(SourceType.USERS, types)}


def test_v01_a_dry_run_reports_differences_and_changes_nothing(
    cli_server: ClaimsServer, cli_client: Client, place: str
) -> None:
    claim(cli_client, CLAIMED)
    before = claimed(cli_client)
    (output,) = answer(*options(cli_server, place), code=1)
    report = output["report"]
    assert (report["dry_run"], report["missing"], report["different"], report["extra"]) == (True, 1, 1, 1)
    assert (output["is_finished"], report["over_destroy_limit"], claimed(cli_client)) == (True, False, before)


def test_v01_apply_corrects_every_difference(cli_server: ClaimsServer, cli_client: Client, place: str) -> None:
    claim(cli_client, [*CLAIMED, *(User(key, f"extra{key}") for key in range(10, 20))])
    (dry_run,) = answer(*options(cli_server, place), code=1)
    assert dry_run["report"]["over_destroy_limit"]
    assert "`--apply` would stop" in run(*options(cli_server, place)).stdout
    answer(*options(cli_server, place), "--apply", code=2)
    (output,) = answer(*options(cli_server, place), "--apply", "--max-destroy-share", "1")
    report = output["report"]
    # The refused run has made the other corrections.
    assert (report["created"], report["replaced"], report["destroyed"]) == (0, 0, 11)
    assert claimed(cli_client) == {"ann", "ann@example.com", "bob", "Carol"}
    assert answer(*options(cli_server, place))[0]["samples"] == []


def test_v09_values_are_hidden_unless_show_values_is_given(cli_server: ClaimsServer, cli_client: Client, database: str) -> None:
    claim(cli_client, CLAIMED)
    plain, shown = (run(*options(cli_server, database), *more).stdout for more in ([], ["--show-values"]))
    assert "dry run" in plain
    assert "dan" not in plain
    assert "dan" in shown


def test_samples_name_type_row_and_reason(cli_server: ClaimsServer, cli_client: Client, place: str) -> None:
    claim(cli_client, CLAIMED)
    first, second = (answer(*options(cli_server, place), code=1)[0]["samples"] for _ in range(2))
    assert first == second
    found = [(sample["outcome"], sample["bucket_type"], sample["key"], sample["reason"]) for sample in first]
    assert sorted(found) == [
        ("created", "USERNAMES", 2, "the service has no claim for this value"),
        ("destroyed", "USERNAMES", 4, "no row makes this claim"),
        ("replaced", "USERNAMES", 3, "the claim has another spelling, subject or row"),
    ]
    shown = run(*options(cli_server, place)).stdout
    assert all(words in shown for words in ("USERNAMES │ 4 ", "no row makes this claim"))


def test_keys_that_are_texts_are_in_quotes(cli_server: ClaimsServer, cli_client: Client, tmp_path: Path) -> None:
    claim(cli_client, [User(7, "[red]bob")])
    path = tmp_path / "users.csv"
    path.write_text("id,username,owner\n7,[red]ann,1\n[b],two words,2\n")
    wanted = ["verify", str(path), "--server", cli_server.url, "--cell", "1", "--source", "USERS", "--text-keys"]
    wanted += ["--claim", "USERNAMES=username,USER=owner", "--recent-within-seconds", "0", "--show-values"]
    (output,) = answer(*wanted, code=1)
    assert [sample["key"] for sample in output["samples"]] == ["[b]", "7", 7]
    ended = run(*wanted)
    assert all(f"│ {cell} " in ended.stdout for cell in ('"7"', '"[b]"', "7", "[red]ann", "[red]bob"))
    assert "white space where its type allows none" in ended.stdout
    assert "the keys of the table are strings, but those of most claims are integers:" in ended.stderr


def test_v09_values_are_shown_as_they_are_and_no_terminal_obeys_them(cli_server: ClaimsServer, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id,username\n1,:smile:\n2,a\x1b[31mred\n3,b\u202ecba\n")
    wanted = ["verify", str(path), "--server", cli_server.url, "--cell", "1", "--source", "USERS"]
    ended = run(*wanted, "--claim", "USERNAMES=username,USER=id", "--show-values")
    assert all(f"│ {value} " in ended.stdout for value in (":smile:", "a\\x1b[31mred", "b\\u202ecba"))
    assert ended.stdout.replace("\n", "").isprintable()


def test_an_error_of_the_table_has_its_reason_in_parentheses(cli_server: ClaimsServer, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id,username\n8,ann\n7,bob\n")
    wanted = ["verify", str(path), "--server", cli_server.url, "--cell", "1", "--source", "USERS"]
    wanted += ["--claim", "USERNAMES=username,USER=id"]
    ended = run(*wanted)
    assert (ended.returncode, ended.stderr.endswith("(COLUMN_ORDER)\n")) == (3, True), ended.stderr
    assert json.loads(run(*wanted, "--json").stderr)["error"]["reason"] == "COLUMN_ORDER"


def test_v07_a_run_continues_from_its_checkpoint_file(
    cli_server: ClaimsServer, cli_client: Client, database: str, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    sliced = ["--apply", "--rows-per-page", "1", "--time-budget-seconds", "0", "--checkpoint", str(path)]
    (first,) = answer(*options(cli_server, database), *sliced, code=7)
    assert (first["is_finished"], path.stat().st_mode & 0o777) == (False, 0o600)
    shown = run(*options(cli_server, database), *sliced)
    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (
        7,
        "stopped before the end: continue with the same --checkpoint",
    )
    other = run(*options(cli_server, database), *sliced, "--source", "EMAILS", "--table", "users")
    assert (other.returncode, "`source type`" in other.stderr) == (3, True)
    runs = 2
    while path.exists():
        assert run(*options(cli_server, database), *sliced).returncode in (0, 7)
        runs += 1
    assert runs > 2
    assert claimed(cli_client) == {"ann", "ann@example.com", "bob", "Carol"}


def test_b02_a_claim_of_another_cell_is_reported_and_kept(cli_server: ClaimsServer, database: str) -> None:
    with Client(cli_server.url, cell_id=2) as other:
        claim(other, [User(1, "ann")])
    (output,) = answer(*options(cli_server, database), "--apply", code=1)
    assert output["report"]["other_cell"] == 1


def test_messages_name_the_options_of_the_command(cli_server: ClaimsServer, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id,username,email,updated_at\n1,ann,,2026-01-01 00:00:00\n")
    parquet = tmp_path / "users.parquet"
    pyarrow.parquet.write_table(as_arrow([User(1, "ann")]).cast(NAIVE), parquet)
    wanted = ["--server", cli_server.url, "--cell", "1", *CLAIMS, "--updated-at-column", "updated_at"]
    for place in (path, parquet):
        assert "`--assume-utc`" in run("verify", str(place), *wanted).stderr or place == path
        assert "`--taken-at`" in run("verify", str(place), *wanted, "--assume-utc", "--apply").stderr
        old = ["--assume-utc", "--apply", "--taken-at", "2026-01-01T00:00:00Z"]
        assert "`--recent-within-seconds`" in run("verify", str(place), *wanted, *old).stderr
    path.write_text("id,username,email,updated_at\n")
    taken_at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "`--allow-empty`" in run("verify", str(path), *wanted, "--apply", "--taken-at", taken_at).stderr
    far = ["--cell", "1", "--server"]
    assert "allow_plaintext" not in run("leases", *far, "http://example.com").stderr
    assert "`--cert`" in run("leases", *far, "http://example.com").stderr
    assert "`--cert`" in run("leases", *far, "https://example.com").stderr
    files = [f"--{name}={path}" for name in ("ca", "cert", "key")]
    assert "`--ca`" in run("leases", *far, "https://example.com", *files).stderr


def test_texts_for_null_need_an_option(cli_server: ClaimsServer, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id,username,email\n1,NULL,\n")
    wanted = ["verify", str(path), "--server", cli_server.url, "--cell", "1", *CLAIMS]
    refused = run(*wanted)
    assert (refused.returncode, "`NULL` in row 0" in refused.stderr, "`--null-value`" in refused.stderr) == (3, True, True)
    assert answer(*wanted, "--null-value", "NULL")[0]["report"]["claims"] == 0
    assert answer(*wanted, "--null-value", "", code=1)[0]["report"]["claims"] == 1


def test_a_table_with_capitals_needs_no_quotes(cli_server: ClaimsServer, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute('CREATE TABLE IF NOT EXISTS "Member" AS SELECT * FROM users')
    (output,) = answer(*options(cli_server, database), "--table", "Member", code=1)
    assert output["report"]["rows"] == len(ROWS)


def test_a_damaged_file_is_an_invalid_argument(cli_server: ClaimsServer, tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    pyarrow.parquet.write_table(as_arrow([User(key, f"user{key}") for key in range(20_000)]), path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    content[len(content) // 4 : len(content) // 4 + 100] = bytes(100)
    path.write_bytes(content)
    ended = run(*options(cli_server, str(path)))
    assert ended.returncode == 2
    assert ended.stderr == f"error: `{path}` cannot be read to its end, because it is damaged: write the file again\n"


def test_a_failed_run_prints_its_counts_and_stores_a_checkpoint(cli_server: ClaimsServer, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "users.csv", tmp_path / "checkpoint"
    pyarrow.csv.write_csv(as_arrow([User(key, f"user{key}") for key in range(1, 100_001)]), path)
    more = ["--apply", "--checkpoint", str(checkpoint), "--timeout-seconds", "15"]
    with Client(cli_server.url, cell_id=1) as client:
        command = [*COMMAND, *options(cli_server, str(path)), *more]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as ended:
            wait_for("claims", lambda: client.list_records(SourceType.USERS, [BucketType.USERNAMES]).records)
            cli_server.kill()
            shown, said = ended.communicate()
    assert ended.returncode in (4, 5)
    assert "corrections" in shown
    assert shown.splitlines()[-1] == "the run failed before the end: continue with the same --checkpoint"
    # Exactly one line is the error. Other lines may warn of a lease whose settlement was interrupted.
    assert [line.startswith("error: ") for line in said.splitlines()].count(True) == 1
    assert checkpoint.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_ends_a_run_after_its_page_with_counts_and_a_checkpoint(cli_server: ClaimsServer, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "users.csv", tmp_path / "checkpoint"
    pyarrow.csv.write_csv(as_arrow([User(key, f"user{key}") for key in range(1, 20_001)]), path)
    words = [*options(cli_server, str(path)), "--apply", "--checkpoint", str(checkpoint), "--rows-per-page", "100"]
    code, shown, said = interrupted_on_terminal("00 rows, ", *words)
    assert code == 130
    assert "Traceback" not in said
    assert "corrections" in shown
    assert shown.splitlines()[-1] == "stopped before the end: continue with the same --checkpoint"
    assert checkpoint.stat().st_mode & 0o777 == 0o600
    (rest,) = answer(*words, "--rows-per-page", "5000")
    assert (rest["is_finished"], 0 < rest["report"]["rows"] < 20_000, checkpoint.exists()) == (True, True, False)
    with Client(cli_server.url, cell_id=1) as client:
        assert list(client.leases()) == []
        assert len(claimed(client)) == 20_000


def test_a_wrong_condition_is_a_wrong_argument(cli_server: ClaimsServer, database: str) -> None:
    for where, cause in [("id >", "syntax error"), ("nosuch > 1", 'column "nosuch" does not exist')]:
        ended = run(*options(cli_server, database), "--where", where, "--json")
        error = json.loads(ended.stderr)["error"]
        assert (ended.returncode, error["exitCode"], error["reason"]) == (2, 2, "INVALID_CONDITION")
        assert error["message"].startswith(f"`--where` is no condition on the rows of the table ({cause}")
    # The database meets the fault of this condition in a row.
    ended = run(*options(cli_server, database), "--where", "10 / (id - 2) > 0")
    assert (ended.returncode, "division by zero" in ended.stderr) == (2, True)


def test_errors_are_printed_in_one_line(cli_server: ClaimsServer, database: str, tmp_path: Path) -> None:
    def ended(*words: str) -> tuple[int, str]:
        done = run(*words)
        assert len(done.stderr.splitlines()) == 1
        return done.returncode, done.stderr

    wanted = options(cli_server, database)
    assert ended(*options(cli_server, str(tmp_path / "users.xlsx")))[0] == 2
    assert ended(*wanted, "--table", "nobody")[0] == 2
    assert ended(*wanted, "--claim", "USERNAMES") == (
        2,
        "error: `USERNAMES` is not a claim: write it as USERNAMES=username,USER=id\n",
    )
    assert ended(*wanted, "--claim", "ROUTES=path,USER=id") == (
        3,
        "error: the column `path` is missing: the table has the columns `id`, `username`, `email`, `updated_at`, `note` "
        "(COLUMN_MISSING)\n",
    )
    missing = str(tmp_path / "missing/file")
    assert ended(*wanted, "--checkpoint", missing)[0] == 2
    assert ended("simulate", "--trace", missing)[0] == 2
    assert ended("sweep", "--parquet", missing)[0] == 2
    assert ended(*options(cli_server, "postgres://127.0.0.1:1/nothing"))[0] == 5
