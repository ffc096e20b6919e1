//! Tests of a start on a database: each problem ends the program before it serves, with a fixed
//! exit code and a hint. No message contains a password.

use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::server::{Server, binary};
use leasehold_tests::wire::{eventually, leasehold};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, SCHEMA_VERSION, await_condition, cells, client_of, create, metric, open_session, serve};

/// The number of the PostgreSQL advisory lock that a running migration holds.
const MIGRATION_LOCK: i64 = 0x006c_6561_7365_686f;
/// Lines of `pg_hba.conf`: the superuser `leasehold` needs no password, but every other role does.
const HBA: &str = "host all leasehold 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

/// The exit code and the output of one run of `leasehold`.
struct Exit {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(arguments: &[&str]) -> Exit {
    let output = Runtime::new().unwrap().block_on(leasehold(arguments)).unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Exit { code: output.status.code().unwrap_or_else(|| panic!("{stderr}")), stdout, stderr }
}

impl Exit {
    /// Returns the error object that a run with `--json` printed as a line of stderr. The log has
    /// further lines if the session of the run before has not ended yet.
    fn error(&self) -> Value {
        let objects = self.stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let error = objects.map(|mut object| object["error"].take()).find(|error| error["exitCode"].is_number());
        error.unwrap_or_else(|| panic!("{}", self.stderr))
    }

    /// Returns true if a line of stderr starts with `start`.
    fn has_line(&self, start: &str) -> bool {
        self.stderr.lines().any(|line| line.starts_with(start))
    }
}

/// Asserts that both `init` and `serve` fail on the database of this URL with this exit code and
/// gRPC code. The message must contain all `words`, and `--json` must report the same error.
#[track_caller]
fn expect_error(url: &str, code: i32, grpc_code: Option<&str>, words: &[&str]) {
    for verb in [&["init"][..], &["serve", "--create", "--listen", "127.0.0.1:0"]] {
        let exit = run(&[verb, &["--store", url]].concat());
        assert_eq!(exit.code, code, "{verb:?} {url}: {}", exit.stderr);
        let scheme = url.split_once("://").map_or("postgres", |(scheme, _)| scheme);
        assert!(exit.has_line(&format!("error: the database `{scheme}://")), "{}", exit.stderr);
        for word in words {
            assert!(exit.stderr.contains(word), "no `{word}` in: {}", exit.stderr);
        }
        let error = run(&[verb, &["--json", "--store", url]].concat()).error();
        assert_eq!((&error["exitCode"], &error["code"]), (&json!(code), &json!(grpc_code)), "{error}");
        let has_hint = exit.stderr.contains("hint: ");
        assert_eq!(error["hint"].is_string(), has_hint, "{error}");
        assert!(!exit.stderr.contains("secret") && !error.to_string().contains("secret"), "{}", exit.stderr);
    }
}

#[test]
fn each_problem_of_a_database_has_an_exit_code_and_a_hint() {
    let cluster = Cluster::start_with(NO_SYNC, &[("pg_hba.conf", HBA)]).unwrap();
    let execute = |sql: &str| cluster.execute("postgres", sql).unwrap();
    execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    execute("CREATE DATABASE frozen");
    execute("ALTER DATABASE frozen SET default_transaction_read_only = on");
    execute("CREATE ROLE me LOGIN PASSWORD 'known'");
    execute("CREATE DATABASE \"closed\"\"one\"");
    execute("REVOKE CONNECT ON DATABASE \"closed\"\"one\" FROM PUBLIC");
    let port = cluster.port();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = |database: &str| format!("postgres://leasehold:secret@127.0.0.1:{port}/{database}");
    let shown = |database: &str| format!("`postgres://127.0.0.1:{port}/{database}`");

    let unreachable = format!("postgres://me:secret@{free}/claims");
    let message = format!("`postgres://{free}/claims` can't be reached: ");
    expect_error(
        &unreachable,
        5,
        Some("UNAVAILABLE"),
        &[&message, "Connection refused", "hint: check that it is up: `pg_isready --dbname=postgres://"],
    );
    let key_value = format!("host=127.0.0.1 port={} user=me password=secret dbname=claims", free.port());
    expect_error(&key_value, 5, Some("UNAVAILABLE"), &[&message]);
    expect_error(&url("none"), 1, None, &[&shown("none"), "does not exist", "hint: ", "CREATE DATABASE"]);
    expect_error(
        &url("latin"),
        1,
        None,
        &[&shown("latin"), "the encoding LATIN1", "UTF8", "hint: ", "CREATE DATABASE"],
    );
    let read_only = [&*shown("frozen"), "is read-only", "default_transaction_read_only", "hint: "];
    expect_error(&url("frozen"), 5, Some("UNAVAILABLE"), &read_only);
    let wrong_password = format!("postgres://me:secret@127.0.0.1:{port}/frozen");
    let words = [&*shown("frozen"), "password authentication failed", "hint: ", "pg_hba.conf"];
    expect_error(&wrong_password, 6, Some("UNAUTHENTICATED"), &words);
    let no_password = format!("postgres://me@127.0.0.1:{port}/frozen");
    expect_error(&no_password, 6, Some("UNAUTHENTICATED"), &[&shown("frozen"), "password missing", "hint: "]);
    let closed = format!("postgres://me:known@127.0.0.1:{port}/closed%22one");
    let grant = r#"hint: as the owner of the database: GRANT CONNECT ON DATABASE "closed""one" TO "me";"#;
    expect_error(&closed, 6, Some("PERMISSION_DENIED"), &["does not let the role `me` connect", grant]);

    execute("ALTER ROLE me CONNECTION LIMIT 0");
    let no_room = format!("postgres://me:known@127.0.0.1:{port}/frozen");
    let words = ["accepts no more connections: ", "hint: ", "`max_connections`", "`postgres.read_connections`"];
    expect_error(&no_room, 5, Some("UNAVAILABLE"), &words);
}

/// pgbouncer reports almost every problem with one SQLSTATE, so the server must read its message
/// text.
#[test]
fn problems_have_the_same_exit_codes_through_pgbouncer() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let bouncer = Bouncer::start_with("\"me\" \"known\"\n", |port, users| {
        format!(
            "[databases]\nclaims = host=127.0.0.1 port={} user=leasehold\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = scram-sha-256\nauth_file = {users}\nserver_login_retry = 1\n",
            cluster.port(),
        )
    });
    let bouncer = bouncer.unwrap();
    let url = |login: &str, database: &str| format!("postgres://{login}@127.0.0.1:{}/{database}", bouncer.port());
    let rejected = ["does not let this server in: ", "hint: check user and password in the URL"];
    expect_error(&url("me:secret", "claims"), 6, Some("UNAUTHENTICATED"), &rejected);
    expect_error(&url("nobody:secret", "claims"), 6, Some("UNAUTHENTICATED"), &rejected);
    let missing = ["does not exist: no such database: none", "hint: check the name, or create it: `CREATE DATABASE"];
    expect_error(&url("me:known", "none"), 1, None, &missing);
    cluster.crash().unwrap();
    expect_error(
        &url("me:known", "claims"),
        5,
        Some("UNAVAILABLE"),
        &["can't be reached: ", "hint: check that it is up: `pg_isready"],
    );
}

#[test]
fn conflicting_and_missing_tables_are_named() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    cluster.execute(&database, "CREATE TABLE claims (number integer)").unwrap();
    let words = [
        "has another object with a name that the tables need: ",
        "relation \"claims\" already exists",
        "hint: give the claims a database of their own: `CREATE DATABASE",
    ];
    expect_error(&cluster.url(&database), 1, None, &words);
    cluster.execute(&database, "DROP TABLE claims").unwrap();
    assert_eq!(run(&["init", "--store", &cluster.url(&database)]).code, 0);
    cluster.execute(&database, "DROP TABLE bucket_types, settled_leases; DROP FUNCTION lock_claims").unwrap();
    let words = ["was migrated, but lacks `settled_leases`, `bucket_types`, `lock_claims`", "hint: ", "`search_path`"];
    expect_error(&cluster.url(&database), 1, None, &words);
}

/// Returns a cluster with an empty database for which `setting` is changed, and the name of the
/// database.
fn with_setting(setting: &str) -> (Cluster, String) {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    cluster.execute("postgres", &format!("ALTER DATABASE {database} SET {setting}")).unwrap();
    (cluster, database)
}

#[test]
fn a_search_path_to_a_missing_schema_is_reported() {
    let (cluster, database) = with_setting("search_path = missing");
    let words = ["has no schema for the tables: ", "hint: set `search_path` to a schema that exists: `ALTER ROLE`"];
    expect_error(&cluster.url(&database), 1, None, &words);
    cluster.execute(&database, "CREATE SCHEMA missing").unwrap();
    assert_eq!(run(&["init", "--store", &cluster.url(&database)]).code, 0);
}

/// A second set of tables in another schema of the database would allow every name to be claimed
/// twice.
#[test]
fn a_search_path_that_misses_the_tables_is_reported() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    assert_eq!(run(&["init", "--store", &cluster.url(&database)]).code, 0);
    cluster.execute(&database, "CREATE SCHEMA other").unwrap();
    cluster.execute(&database, &format!("ALTER DATABASE {database} SET search_path = other")).unwrap();
    let words = [
        "has the tables in the schema public, but the search path of the role leasehold begins with other",
        "hint: set the search path: ",
    ];
    expect_error(&cluster.url(&database), 1, None, &words);
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'other'";
    assert_eq!(cluster.execute(&database, tables).unwrap(), ["0"]);
}

/// The migration waits for a lock on a table that `pg_dump` is reading. An event trigger takes the
/// lock in this test; statements of later schema versions will take such locks themselves.
#[test]
fn a_migration_that_waits_for_a_table_keeps_no_server_waiting() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let url = cluster.url(&database);
    let locks_a_table = "
        CREATE TABLE in_use ();
        CREATE FUNCTION lock_table() RETURNS event_trigger LANGUAGE plpgsql AS $$
            BEGIN LOCK TABLE in_use IN ACCESS EXCLUSIVE MODE; END $$;
        CREATE EVENT TRIGGER migration ON ddl_command_start WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION lock_table()";
    cluster.execute(&database, locks_a_table).unwrap();
    let runtime = Runtime::new().unwrap();
    let dump = open_session(&runtime, &url);
    runtime.block_on(dump.batch_execute("BEGIN; LOCK TABLE in_use IN ACCESS SHARE MODE")).unwrap();
    let directory = TempDir::new().unwrap();
    let config = config(&directory, &format!("url = \"{url}\"\nmigration_wait_seconds = 2"));
    let exit = run(&["init", "--config", &config]);
    assert_eq!(exit.code, 4, "{}", exit.stderr);
    for words in ["another session uses the tables: retrying", "can't change the tables", "hint: try again when"] {
        assert!(exit.stderr.contains(words), "no `{words}` in: {}", exit.stderr);
    }
    std::thread::scope(|scope| {
        let migrating = scope.spawn(|| run(&["init", "--store", &url]));
        await_condition("the migration waits for the table", || {
            let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'in_use'::regclass";
            cluster.execute(&database, waiting).unwrap() == ["1"]
        });
        // A server's lock on the table does not conflict with the dump's lock. But PostgreSQL puts
        // it behind the migration's lock request in the queue.
        let start = std::time::Instant::now();
        cluster.execute(&database, "BEGIN; LOCK TABLE in_use IN ROW EXCLUSIVE MODE; COMMIT").unwrap();
        assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?}", start.elapsed());
        runtime.block_on(dump.batch_execute("COMMIT")).unwrap();
        let exit = migrating.join().unwrap();
        assert_eq!(exit.code, 0, "{}", exit.stderr);
    });
}

#[test]
fn a_statement_timeout_that_is_too_short_is_reported() {
    let (cluster, database) = with_setting("statement_timeout = '1ms'");
    let words = ["cancels statements before they are done: ", "hint: raise or remove `statement_timeout`: "];
    expect_error(&cluster.url(&database), 5, Some("UNAVAILABLE"), &words);
}

#[test]
fn invalid_urls_are_refused_with_the_correct_form() {
    for (url, words) in [
        (
            "mysql://me:secret@db/claims",
            "`mysql://…` can't be used: `mysql://` is not PostgreSQL: write `postgres://USER",
        ),
        ("claims", "write `postgres://USER"),
        ("postgres://me:my@secret@db/claims", "more than one `@`: write `@` in a password as `%40`"),
        ("postgres://me:secret@/claims", "no host is named: write `postgres://USER"),
        ("postgres://me:secret@db/claims?sslmode=verify-full", "`disable`, `prefer` or `require`; with `postgres.ca`"),
        ("postgres://me:secret@db/claims?sslrootcert=a.pem", "`postgres.ca`"),
        ("postgres://me:secret@db:port/claims", "write `postgres://USER"),
    ] {
        expect_error(url, 2, None, &["can't be used: ", words]);
        // A URL in the configuration file must be refused like one on the command line.
        let directory = TempDir::new().unwrap();
        let exit = run(&["migrate", "--config", &config(&directory, &format!("url = {url:?}"))]);
        assert_eq!(exit.code, 2, "{}", exit.stderr);
        assert!(exit.stderr.contains(words), "{}", exit.stderr);
    }
}

/// Exit code 2 means an invalid configuration, in the file as on the command line.
#[test]
fn invalid_tls_settings_end_with_the_exit_code_of_an_invalid_configuration() {
    let directory = TempDir::new().unwrap();
    expect_error("postgres://me:secret@db/claims", 2, None, &["can't be used: ", "`postgres.ca`"]);
    for (settings, words) in [
        ("certificate = \"a.pem\"", "`postgres.certificate` and `postgres.key` belong together"),
        ("ca = \"/nowhere/ca.pem\"", "`/nowhere/ca.pem`"),
    ] {
        let config = config(&directory, &format!("url = \"postgres://127.0.0.1:1/claims\"\n{settings}"));
        for verb in [&["migrate"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let exit = run(&[verb, &["--config", &config]].concat());
            assert_eq!(exit.code, 2, "{}", exit.stderr);
            assert!(exit.stderr.contains(words), "{}", exit.stderr);
        }
    }
}

#[test]
fn a_command_line_without_a_database_or_with_two_stores_is_refused() {
    let url = "postgres://me:secret@127.0.0.1:1/claims";
    for (arguments, words) in [
        (&["migrate"][..], "no database is named: pass `--store postgres://…`"),
        (&["migrate", "--store", ""], "write `postgres://USER"),
        (&["serve", "--store", url, "--data", "elsewhere"], "leave one of them out"),
    ] {
        let exit = run(arguments);
        assert_eq!(exit.code, 2, "{arguments:?}: {}", exit.stderr);
        assert!(exit.stderr.starts_with("error: ") && exit.stderr.contains(words), "{}", exit.stderr);
        assert_eq!(run(&[arguments, &["--json"]].concat()).error()["exitCode"], 2);
    }
}

#[test]
fn a_standby_is_refused_and_named_as_such() {
    let cluster = Cluster::start_with(NO_SYNC, &[("standby.signal", "")]).unwrap();
    let words = ["/postgres` is a standby", "hint: name the primary, or all hosts"];
    expect_error(&cluster.url("postgres"), 5, Some("UNAVAILABLE"), &words);
    let only_primaries = format!("{}?target_session_attrs=read-write", cluster.url("postgres"));
    expect_error(&only_primaries, 5, Some("UNAVAILABLE"), &words);
}

#[test]
fn the_json_output_of_a_migration_has_the_versions_before_and_after() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let url = cluster.url(&database);
    let dump = concat!(env!("CARGO_MANIFEST_DIR"), "/stored/v1/postgres.dump");
    cluster.execute(&database, &std::fs::read_to_string(dump).unwrap()).unwrap();
    let shown = url.replace("leasehold@", "");
    for from in [1, SCHEMA_VERSION] {
        let output = Runtime::new().unwrap().block_on(leasehold(["migrate", "--json", "--store", &url])).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected =
            json!({ "done": "migrated", "database": shown, "from": from, "to": SCHEMA_VERSION, "adopted": false });
        assert_eq!(report, expected);
    }
}

/// Writes a configuration file with these lines in its section `[postgres]`. Returns the path of
/// the file.
fn config(directory: &TempDir, settings: &str) -> String {
    let path = directory.path().join("leasehold.toml");
    std::fs::write(&path, format!("{}\n[postgres]\n{settings}\n", cells(1))).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn migrate_and_serve_refuse_the_same_settings() {
    let directory = TempDir::new().unwrap();
    for (setting, words) in [
        ("patience_seconds = 0", "`postgres.patience_seconds` is 0: give 1 to"),
        ("write_connections = 9999999", "`postgres.write_connections` is 9999999: give 1 to 64"),
        ("write_connections = -1", "`postgres.write_connections` is -1: give 1 to 64"),
    ] {
        let config = config(&directory, &format!("url = \"postgres://127.0.0.1:1/claims\"\n{setting}"));
        for verb in ["migrate", "serve"] {
            let exit = run(&[verb, "--config", &config]);
            assert_eq!(exit.code, 2, "{}", exit.stderr);
            assert!(exit.stderr.starts_with("error: ") && exit.stderr.contains(words), "{}", exit.stderr);
        }
    }
}

#[test]
fn a_migration_waits_for_another_one_up_to_its_time_limit() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let directory = TempDir::new().unwrap();
    let runtime = Runtime::new().unwrap();
    let other_migration = open_session(&runtime, &url);
    let execute = |sql: &str| runtime.block_on(other_migration.batch_execute(sql)).unwrap();
    execute(&format!("SELECT pg_advisory_lock({MIGRATION_LOCK})"));

    let short_wait = config(&directory, &format!("url = {url:?}\nmigration_wait_seconds = 1"));
    for verb in ["migrate", "serve"] {
        let exit = run(&[verb, "--config", &short_wait]);
        assert_eq!(exit.code, 4, "{}", exit.stderr);
        for words in ["waiting for at most 1 s", "still being migrated by another program after 1 s", "hint: "] {
            assert!(exit.stderr.contains(words), "{}", exit.stderr);
        }
    }
    let error = run(&["migrate", "--json", "--config", &short_wait]).error();
    assert_eq!(error["code"], "DEADLINE_EXCEEDED");

    let long_wait = config(&directory, &format!("url = {url:?}\nmigration_wait_seconds = 30"));
    std::thread::scope(|scope| {
        let migrating = scope.spawn(|| run(&["init", "--config", &long_wait]));
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        await_condition("the migration waits for the lock", || cluster.execute("postgres", waiting).unwrap() == ["1"]);
        execute(&format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})"));
        let exit = migrating.join().unwrap();
        assert_eq!(exit.code, 0, "{}", exit.stderr);
        assert!(exit.has_line("made the store "), "{}", exit.stderr);
    });
    // `migrate` needs no lock if the database has the current schema version already.
    execute(&format!("SELECT pg_advisory_lock({MIGRATION_LOCK})"));
    assert_eq!(run(&["migrate", "--config", &short_wait]).code, 0);
}

#[test]
fn a_role_without_rights_gets_the_missing_grants_as_a_hint() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let execute = |sql: &str| cluster.execute(&database, sql).unwrap();
    execute("CREATE ROLE \"App\" LOGIN");
    let url = cluster.url(&database).replace("leasehold@", "App@");
    let refused = |url: &str| {
        let exit = run(&["serve", "--create", "--listen", "127.0.0.1:0", "--store", url]);
        assert_eq!(exit.code, 6, "{}", exit.stderr);
        exit.stderr
    };
    // The tables do not exist yet, and the role `App` may not create them.
    let stderr = refused(&url);
    assert!(stderr.contains("permission denied for schema public") && stderr.contains("leasehold migrate"), "{stderr}");
    assert_eq!(run(&["init", "--store", &cluster.url(&database)]).code, 0);
    let with_rights_of_the_owner =
        "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace
        AND has_function_privilege('App', oid, 'EXECUTE')";
    assert_eq!(execute(with_rights_of_the_owner), [""; 0], "roles without grants may call these");
    execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC");
    execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO \"App\"");
    execute("REVOKE SELECT ON store_epochs FROM \"App\"");
    let stderr = refused(&url);
    assert!(stderr.contains("does not give the role `App` the rights that a server needs"), "{stderr}");
    execute("REVOKE SELECT ON leasehold_migrations FROM \"App\"");
    let examined = run(&["doctor", "--store", &url]).stdout;
    assert!(examined.contains("GRANT SELECT ON leasehold_migrations TO \"App\"; "), "{examined}");
    assert!(examined.contains("GRANT EXECUTE ON FUNCTION write_group TO \"App\""), "{examined}");
    execute("GRANT SELECT ON leasehold_migrations TO \"App\"");
    let hint = stderr.split("as the owner of the tables: ").nth(1).unwrap_or_else(|| panic!("{stderr}"));
    for grant in [
        "GRANT INSERT, UPDATE, DELETE ON claims TO \"App\";",
        "GRANT SELECT ON store_epochs TO \"App\";",
        "GRANT USAGE ON SEQUENCE lease_fences TO \"App\";",
        "GRANT UPDATE (unicode_version) ON leasehold_store TO \"App\";",
        "GRANT EXECUTE ON FUNCTION try_write_group TO \"App\";",
        "GRANT EXECUTE ON FUNCTION shift_request_partitions TO \"App\";",
    ] {
        assert!(hint.contains(grant), "{grant}: {hint}");
    }
    execute(hint);
    let examined = run(&["doctor", "--store", &url]);
    assert_eq!(examined.code, 0, "{}", examined.stderr);
    let server = Server::builder().config(cells(1)).arg("--store").arg(&url).start().unwrap();
    // The function runs with the rights of the owner, who may create tables.
    await_condition("the server adds partitions", || execute("SELECT count(*) FROM request_partitions()") == ["10"]);
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    for number in 0..3 {
        let name = format!("granted-{number}");
        let update = Update { creates: vec![user(&name, 7, Vec::new())], key: Some(name), ..Update::default() };
        let lease = runtime.block_on(client.begin(update)).unwrap().lease;
        runtime.block_on(client.settle(&lease, leasehold_core::lease::Outcome::Committed)).unwrap();
    }
    expect_warning_until_the_role_may_vacuum(&cluster, &database, &server, &mut client);
}

/// Only the owner of a table may vacuum it. Asserts that a server with another role warns exactly
/// once, and that it vacuums the table as soon as its role is the owner.
fn expect_warning_until_the_role_may_vacuum(cluster: &Cluster, database: &str, server: &Server, client: &mut Client) {
    let runtime = Runtime::new().unwrap();
    let alter = "ALTER TABLE claim_leases OWNER TO \"App\"";
    let warnings = || server.stderr().lines().filter(|line| line.contains(alter)).count();
    await_condition("there is a warning", || warnings() == 1);
    // The metric is updated by the same maintenance round that vacuums tables, so its change shows
    // a further round.
    runtime.block_on(client.begin(create("counted"))).unwrap();
    await_condition("another round of maintenance is done", || {
        metric(&runtime, server, "leasehold_outstanding_leases").as_deref() == Some("1")
    });
    let stderr = server.stderr();
    assert!(!stderr.contains("permission denied to vacuum") && warnings() == 1, "{stderr}");
    let vacuumed = "SELECT vacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'claim_leases'";
    assert_eq!(cluster.execute(database, vacuumed).unwrap(), ["f"]);
    cluster.execute(database, alter).unwrap();
    await_condition("the table is vacuumed", || cluster.execute(database, vacuumed).unwrap() == ["t"]);
}

/// 64 writers need more file descriptors than the limit allows. The writers that have started must
/// stop without a panic.
#[test]
fn too_few_file_descriptors_end_the_start_with_an_error() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let directory = TempDir::new().unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let config = config(&directory, &format!("url = {url:?}\nwrite_connections = 64"));
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 60; exec \"$@\"", "sh"]).arg(binary().unwrap());
    command.args(["serve", "--create", "--listen", "127.0.0.1:0", "--config", &config]).kill_on_drop(true);
    let output = Runtime::new()
        .unwrap()
        .block_on(async { tokio::time::timeout(std::time::Duration::from_secs(30), command.output()).await });
    let output = output.unwrap().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: ") && stderr.contains("Too many open files"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_configured_database_with_a_data_directory_is_refused() {
    let directory = TempDir::new().unwrap();
    let config = config(&directory, "url = \"postgres://me:secret@127.0.0.1:1/claims\"");
    let exit = run(&["serve", "--config", &config, "--data", "elsewhere"]);
    assert_eq!(exit.code, 2, "{}", exit.stderr);
    for words in ["`elsewhere`", "`postgres://127.0.0.1:1/claims`", "leave one of them out"] {
        assert!(exit.stderr.contains(words), "{}", exit.stderr);
    }
}

#[test]
fn a_changed_password_file_needs_no_restart() {
    let cluster = Cluster::start_with(NO_SYNC, &[("pg_hba.conf", HBA)]).unwrap();
    let execute = |sql: &str| cluster.execute("postgres", sql).unwrap();
    execute("CREATE ROLE me LOGIN PASSWORD 'first'");
    execute("CREATE DATABASE mine OWNER me");
    let files = TempDir::new().unwrap();
    let path = files.path().join("password");
    std::fs::write(&path, "first\n").unwrap();
    let url = format!("postgres://me@127.0.0.1:{}/mine", cluster.port());
    let (runtime, settings) = (Runtime::new().unwrap(), format!("patience_seconds = 60\npassword_file = {path:?}"));
    let server = serve(&url, &settings);
    let mut client = client_of(&runtime, &server);
    runtime.block_on(client.begin(create("before"))).unwrap();
    let lose_connections = || execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'me'");
    let mut begins = |name: &str| runtime.block_on(client.begin(create(name))).is_ok();

    execute("ALTER ROLE me PASSWORD 'second'");
    std::fs::write(&path, "second\n").unwrap();
    lose_connections();
    await_condition("the server has connected with the second password", || begins("after"));

    execute("ALTER ROLE me PASSWORD 'third'");
    lose_connections();
    let begun = runtime.block_on(async {
        let changed = async {
            let said = "password authentication failed";
            eventually(said, async || server.stderr().contains(said).then_some(())).await.unwrap();
            std::fs::write(&path, "third\n").unwrap();
        };
        tokio::join!(client.begin(create("waits")), changed).0
    });
    assert!(begun.is_ok(), "{begun:?}");
    let mut begins = |name: &str| runtime.block_on(client.begin(create(name))).is_ok();

    std::fs::remove_file(&path).unwrap();
    lose_connections();
    await_condition("the server has connected with the last password", || begins("without"));
    assert!(server.has_logged("the former password is tried"), "{}", server.stderr());
    assert!(!server.stderr().contains("second") && !server.stderr().contains("third"), "{}", server.stderr());
    drop(server);

    std::fs::write(&path, "wrong\n").unwrap();
    let config = format!("[postgres]\nurl = \"{url}\"\n{settings}\n{}", cells(3));
    let refused = |config: String| Server::builder().config(config).start().unwrap_err().to_string();
    assert!(refused(config.clone()).contains("password authentication failed"));
    assert!(refused(config.replace("me@", "me:third@")).contains("leave one of them out"));
    std::fs::write(&path, "").unwrap();
    assert!(refused(config).contains("it is empty"));
}
