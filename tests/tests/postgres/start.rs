//! What a database has to be: told before anything is served, with an exit code and what to do, and without the password.

use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::server::{Server, binary};
use leasehold_tests::wire::{get, leasehold};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use crate::{NO_SYNC, TABLES, await_condition, cells};

/// The lock that whoever migrates holds.
const MIGRATION_LOCK: i64 = 0x006c_6561_7365_686f;
/// The cluster's own user needs no password, others do.
const HBA: &str = "host all leasehold 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

struct Said {
    code: i32,
    stderr: String,
}

fn run(arguments: &[&str]) -> Said {
    let output = Runtime::new().unwrap().block_on(leasehold(arguments)).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Said { code: output.status.code().unwrap_or_else(|| panic!("{stderr}")), stderr }
}

impl Said {
    fn error(&self) -> Value {
        let line = self.stderr.lines().last().unwrap();
        let object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{}", self.stderr));
        object["error"].clone()
    }
}

/// Both ways to start on a database end so, for people and for machines.
#[track_caller]
fn expect(url: &str, code: i32, name: Option<&str>, words: &[&str]) {
    for verb in [&["migrate"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let said = run(&[verb, &["--store", url]].concat());
        assert_eq!(said.code, code, "{verb:?} {url}: {}", said.stderr);
        let scheme = url.split_once("://").map_or("postgres", |(scheme, _)| scheme);
        assert!(said.stderr.starts_with(&format!("error: the database `{scheme}://")), "{}", said.stderr);
        for word in words {
            assert!(said.stderr.contains(word), "no `{word}` in: {}", said.stderr);
        }
        let error = run(&[verb, &["--json", "--store", url]].concat()).error();
        assert_eq!((&error["exitCode"], &error["code"]), (&json!(code), &json!(name)), "{error}");
        let told = said.stderr.contains("hint: ");
        assert_eq!(error["hint"].is_string(), told, "{error}");
        assert!(!said.stderr.contains("secret") && !error.to_string().contains("secret"), "{}", said.stderr);
    }
}

#[test]
fn each_trouble_has_an_exit_code_and_says_what_to_do() {
    let cluster = Cluster::start_with(NO_SYNC, &[("pg_hba.conf", HBA)]).unwrap();
    let ask = |sql: &str| cluster.execute("postgres", sql).unwrap();
    ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    ask("CREATE DATABASE frozen");
    ask("ALTER DATABASE frozen SET default_transaction_read_only = on");
    ask("CREATE ROLE me LOGIN PASSWORD 'known'");
    ask("CREATE DATABASE \"closed\"\"one\"");
    ask("REVOKE CONNECT ON DATABASE \"closed\"\"one\" FROM PUBLIC");
    let port = cluster.port();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = |database: &str| format!("postgres://leasehold:secret@127.0.0.1:{port}/{database}");
    let shown = |database: &str| format!("`postgres://127.0.0.1:{port}/{database}`");

    let away = format!("postgres://me:secret@{free}/claims");
    let named = format!("`postgres://{free}/claims` can't be reached: ");
    expect(
        &away,
        5,
        Some("UNAVAILABLE"),
        &[&named, "Connection refused", "hint: check that it is up: `pg_isready --dbname=postgres://"],
    );
    let words = format!("host=127.0.0.1 port={} user=me password=secret dbname=claims", free.port());
    expect(&words, 5, Some("UNAVAILABLE"), &[&named]);
    expect(&url("none"), 1, None, &[&shown("none"), "does not exist", "hint: ", "CREATE DATABASE"]);
    expect(&url("latin"), 1, None, &[&shown("latin"), "the encoding LATIN1", "UTF8", "hint: ", "CREATE DATABASE"]);
    let read_only = [&*shown("frozen"), "is read-only", "default_transaction_read_only", "hint: "];
    expect(&url("frozen"), 5, Some("UNAVAILABLE"), &read_only);
    let stranger = format!("postgres://me:secret@127.0.0.1:{port}/frozen");
    let refused = [&*shown("frozen"), "password authentication failed", "hint: ", "pg_hba.conf"];
    expect(&stranger, 6, Some("UNAUTHENTICATED"), &refused);
    let no_password = format!("postgres://me@127.0.0.1:{port}/frozen");
    expect(&no_password, 6, Some("UNAUTHENTICATED"), &[&shown("frozen"), "password missing", "hint: "]);
    let closed = format!("postgres://me:known@127.0.0.1:{port}/closed%22one");
    let grant = r#"hint: as the owner of the database: GRANT CONNECT ON DATABASE "closed""one" TO "me";"#;
    expect(&closed, 6, Some("PERMISSION_DENIED"), &["does not let the role `me` connect", grant]);

    ask("ALTER ROLE me CONNECTION LIMIT 0");
    let crowded = format!("postgres://me:known@127.0.0.1:{port}/frozen");
    let words = ["accepts no more connections: ", "hint: ", "`max_connections`", "`postgres.read_connections`"];
    expect(&crowded, 5, Some("UNAVAILABLE"), &words);
}

/// pgbouncer has one code for nearly everything; its words tell what it is.
#[test]
fn troubles_are_the_same_ones_through_pgbouncer() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let bouncer = Bouncer::start_with("\"me\" \"known\"\n", |port, users| {
        format!(
            "[databases]\nclaims = host=127.0.0.1 port={} user=leasehold\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = scram-sha-256\nauth_file = {users}\nserver_login_retry = 1\n",
            cluster.port(),
        )
    });
    let bouncer = bouncer.unwrap();
    let url = |who: &str, database: &str| format!("postgres://{who}@127.0.0.1:{}/{database}", bouncer.port());
    let not_let_in = ["does not let this server in: ", "hint: check user and password in the URL"];
    expect(&url("me:secret", "claims"), 6, Some("UNAUTHENTICATED"), &not_let_in);
    expect(&url("nobody:secret", "claims"), 6, Some("UNAUTHENTICATED"), &not_let_in);
    let missing = ["does not exist: no such database: none", "hint: check the name, or create it: `CREATE DATABASE"];
    expect(&url("me:known", "none"), 1, None, &missing);
    cluster.crash().unwrap();
    expect(
        &url("me:known", "claims"),
        5,
        Some("UNAVAILABLE"),
        &["can't be reached: ", "hint: check that it is up: `pg_isready"],
    );
}

#[test]
fn tables_that_are_in_the_way_or_missing_are_named() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    cluster.execute(&database, "CREATE TABLE claims (number integer)").unwrap();
    let words = [
        "has another object with a name that the tables need: ",
        "relation \"claims\" already exists",
        "hint: give the claims a database of their own: `CREATE DATABASE",
    ];
    expect(&cluster.url(&database), 1, None, &words);
    cluster.execute(&database, "DROP TABLE claims").unwrap();
    assert_eq!(run(&["migrate", "--store", &cluster.url(&database)]).code, 0);
    cluster.execute(&database, "DROP TABLE bucket_types, settled_leases; DROP FUNCTION lock_claims").unwrap();
    let words = ["was migrated, but lacks `settled_leases`, `bucket_types`, `lock_claims`", "hint: ", "`search_path`"];
    expect(&cluster.url(&database), 1, None, &words);
}

/// A cluster with an empty database that somebody has set something of.
fn with_setting(setting: &str) -> (Cluster, String) {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    cluster.execute("postgres", &format!("ALTER DATABASE {database} SET {setting}")).unwrap();
    (cluster, database)
}

#[test]
fn a_search_path_that_leads_nowhere_is_told_as_that() {
    let (cluster, database) = with_setting("search_path = missing");
    let words = ["has no schema for the tables: ", "hint: set `search_path` to a schema that exists: `ALTER ROLE`"];
    expect(&cluster.url(&database), 1, None, &words);
    cluster.execute(&database, "CREATE SCHEMA missing").unwrap();
    assert_eq!(run(&["migrate", "--store", &cluster.url(&database)]).code, 0);
}

/// Two sets of tables in one database would give every name out twice.
#[test]
fn a_search_path_that_leads_past_the_tables_is_told_as_that() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    assert_eq!(run(&["migrate", "--store", &cluster.url(&database)]).code, 0);
    cluster.execute(&database, "CREATE SCHEMA other").unwrap();
    cluster.execute(&database, &format!("ALTER DATABASE {database} SET search_path = other")).unwrap();
    let words = [
        "has the tables in the schema public, but the search path of the role leasehold begins with other",
        "hint: set the search path: ",
    ];
    expect(&cluster.url(&database), 1, None, &words);
    let made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'other'";
    assert_eq!(cluster.execute(&database, made).unwrap(), ["0"]);
}

/// The migration needs a lock on a table that a `pg_dump` has open. An event trigger locks the table, as the statements
/// of a later version of the tables will.
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
    let dump = crate::connect(&runtime, &url);
    runtime.block_on(dump.batch_execute("BEGIN; LOCK TABLE in_use IN ACCESS SHARE MODE")).unwrap();
    let directory = TempDir::new().unwrap();
    let config = config(&directory, &format!("url = \"{url}\"\nmigration_wait_seconds = 2"));
    let said = run(&["migrate", "--config", &config]);
    assert_eq!(said.code, 4, "{}", said.stderr);
    for words in ["another session uses the tables: retrying", "can't change the tables", "hint: try again when"] {
        assert!(said.stderr.contains(words), "no `{words}` in: {}", said.stderr);
    }
    std::thread::scope(|scope| {
        let migrating = scope.spawn(|| run(&["migrate", "--store", &url]));
        await_condition("the migration waits for the table", || {
            let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'in_use'::regclass";
            cluster.execute(&database, waiting).unwrap() == ["1"]
        });
        // A server's lock does not conflict with the one of the dump, but queues behind the one of the migration.
        let asked = std::time::Instant::now();
        cluster.execute(&database, "BEGIN; LOCK TABLE in_use IN ROW EXCLUSIVE MODE; COMMIT").unwrap();
        assert!(asked.elapsed() < std::time::Duration::from_secs(1), "{:?}", asked.elapsed());
        runtime.block_on(dump.batch_execute("COMMIT")).unwrap();
        let said = migrating.join().unwrap();
        assert_eq!(said.code, 0, "{}", said.stderr);
    });
}

#[test]
fn a_statement_timeout_that_leaves_no_time_is_told_as_that() {
    let (cluster, database) = with_setting("statement_timeout = '1ms'");
    let words = ["cancels statements before they are done: ", "hint: raise or remove `statement_timeout`: "];
    expect(&cluster.url(&database), 5, Some("UNAVAILABLE"), &words);
}

#[test]
fn urls_that_are_not_understood_are_refused_with_what_to_write() {
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
        expect(url, 2, None, &["can't be used: ", words]);
        // In the file it is the same.
        let directory = TempDir::new().unwrap();
        let said = run(&["migrate", "--config", &config(&directory, &format!("url = {url:?}"))]);
        assert_eq!(said.code, 2, "{}", said.stderr);
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
}

/// Wherever it stands, and whichever setting it is, it is the configuration that is wrong.
#[test]
fn settings_of_tls_that_cannot_work_end_as_a_url_does() {
    let directory = TempDir::new().unwrap();
    expect("postgres://me:secret@db/claims", 2, None, &["can't be used: ", "`postgres.ca`"]);
    for (settings, words) in [
        ("certificate = \"a.pem\"", "`postgres.certificate` and `postgres.key` belong together"),
        ("ca = \"/nowhere/ca.pem\"", "`/nowhere/ca.pem`"),
    ] {
        let config = config(&directory, &format!("url = \"postgres://127.0.0.1:1/claims\"\n{settings}"));
        for verb in [&["migrate"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let said = run(&[verb, &["--config", &config]].concat());
            assert_eq!(said.code, 2, "{}", said.stderr);
            assert!(said.stderr.contains(words), "{}", said.stderr);
        }
    }
}

#[test]
fn a_command_line_that_names_no_database_or_two_stores_is_wrong() {
    let url = "postgres://me:secret@127.0.0.1:1/claims";
    for (arguments, words) in [
        (&["migrate"][..], "no database is named: pass `--store postgres://…`"),
        (&["migrate", "--store", ""], "write `postgres://USER"),
        (&["serve", "--store", url, "--data", "elsewhere"], "leave one of them out"),
    ] {
        let said = run(arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {}", said.stderr);
        assert!(said.stderr.starts_with("error: ") && said.stderr.contains(words), "{}", said.stderr);
        assert_eq!(run(&[arguments, &["--json"]].concat()).error()["exitCode"], 2);
    }
}

#[test]
fn a_standby_is_called_one() {
    let cluster = Cluster::start_with(NO_SYNC, &[("standby.signal", "")]).unwrap();
    let words = ["/postgres` is a standby", "hint: name the primary, or all hosts"];
    expect(&cluster.url("postgres"), 5, Some("UNAVAILABLE"), &words);
    let only_primaries = format!("{}?target_session_attrs=read-write", cluster.url("postgres"));
    expect(&only_primaries, 5, Some("UNAVAILABLE"), &words);
}

#[test]
fn a_migration_tells_machines_what_it_has_done() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let shown = url.replace("leasehold@", "");
    for from in [0, TABLES] {
        let output = Runtime::new().unwrap().block_on(leasehold(["migrate", "--json", "--store", &url])).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told, json!({ "done": "migrated", "database": shown, "from": from, "to": TABLES }));
    }
}

/// A configuration file with these settings of a database.
fn config(directory: &TempDir, settings: &str) -> String {
    let path = directory.path().join("leasehold.toml");
    std::fs::write(&path, format!("{}\n[postgres]\n{settings}\n", cells(1))).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn settings_that_serve_refuses_are_refused_by_migrate() {
    let directory = TempDir::new().unwrap();
    for (setting, words) in [
        ("patience_seconds = 0", "`postgres.patience_seconds` is 0: give 1 to"),
        ("write_connections = 9999999", "`postgres.write_connections` is 9999999: give 1 to 64"),
        ("write_connections = -1", "`postgres.write_connections` is -1: give 1 to 64"),
    ] {
        let config = config(&directory, &format!("url = \"postgres://127.0.0.1:1/claims\"\n{setting}"));
        for verb in ["migrate", "serve"] {
            let said = run(&[verb, "--config", &config]);
            assert_eq!(said.code, 2, "{}", said.stderr);
            assert!(said.stderr.starts_with("error: ") && said.stderr.contains(words), "{}", said.stderr);
        }
    }
}

#[test]
fn another_migration_is_waited_for_but_not_for_ever() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let directory = TempDir::new().unwrap();
    let runtime = Runtime::new().unwrap();
    let (holder, connection) = runtime.block_on(tokio_postgres::connect(&url, NoTls)).unwrap();
    runtime.spawn(connection);
    let ask = |sql: &str| runtime.block_on(holder.batch_execute(sql)).unwrap();
    ask(&format!("SELECT pg_advisory_lock({MIGRATION_LOCK})"));

    let impatient = config(&directory, &format!("url = {url:?}\nmigration_wait_seconds = 1"));
    for verb in ["migrate", "serve"] {
        let said = run(&[verb, "--config", &impatient]);
        assert_eq!(said.code, 4, "{}", said.stderr);
        for words in ["waiting for at most 1 s", "still being migrated by another program after 1 s", "hint: "] {
            assert!(said.stderr.contains(words), "{}", said.stderr);
        }
    }
    let error = run(&["migrate", "--json", "--config", &impatient]).error();
    assert_eq!(error["code"], "DEADLINE_EXCEEDED");

    let patient = config(&directory, &format!("url = {url:?}\nmigration_wait_seconds = 30"));
    std::thread::scope(|scope| {
        let migrating = scope.spawn(|| run(&["migrate", "--config", &patient]));
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        await_condition("it waits", || cluster.execute("postgres", waiting).unwrap() == ["1"]);
        ask(&format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})"));
        let said = migrating.join().unwrap();
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(said.stderr.contains(&format!("from version 0 to {TABLES}")), "{}", said.stderr);
    });
    // What is done already needs no lock.
    ask(&format!("SELECT pg_advisory_lock({MIGRATION_LOCK})"));
    assert_eq!(run(&["migrate", "--config", &impatient]).code, 0);
}

#[test]
fn a_role_without_rights_is_told_which_grants_are_missing() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let ask = |sql: &str| cluster.execute(&database, sql).unwrap();
    ask("CREATE ROLE \"App\" LOGIN");
    let url = cluster.url(&database).replace("leasehold@", "App@");
    let refused = |url: &str| {
        let said = run(&["serve", "--listen", "127.0.0.1:0", "--store", url]);
        assert_eq!(said.code, 6, "{}", said.stderr);
        said.stderr
    };
    // Nobody has made the tables, and this role may not.
    let stderr = refused(&url);
    assert!(stderr.contains("permission denied for schema public") && stderr.contains("leasehold migrate"), "{stderr}");
    assert_eq!(run(&["migrate", "--store", &cluster.url(&database)]).code, 0);
    ask("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC");
    ask("GRANT SELECT ON ALL TABLES IN SCHEMA public TO \"App\"");
    let stderr = refused(&url);
    assert!(stderr.contains("does not give the role `App` the rights that a server needs"), "{stderr}");
    let hint = stderr.split("as the owner of the tables: ").nth(1).unwrap_or_else(|| panic!("{stderr}"));
    for grant in [
        "GRANT INSERT, UPDATE, DELETE ON claims TO \"App\";",
        "GRANT USAGE ON SEQUENCE lease_fences TO \"App\";",
        "GRANT EXECUTE ON FUNCTION try_write_rows TO \"App\";",
    ] {
        assert!(hint.contains(grant), "{grant}: {hint}");
    }
    ask(hint);
    let server = Server::builder().config(cells(1)).arg("--store").arg(&url).start().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut client = Client::over(runtime.block_on(server.connect(None)).unwrap(), 1);
    for number in 0..3 {
        let name = format!("granted-{number}");
        let update = Update { creates: vec![user(&name, 7, Vec::new())], key: Some(name), ..Update::default() };
        let lease = runtime.block_on(client.begin(update)).unwrap().lease;
        runtime.block_on(client.settle(&lease, leasehold_core::lease::Outcome::Committed)).unwrap();
    }
    is_warned_of_what_it_may_not_tidy_up(&cluster, &database, &server, &mut client);
}

/// A role that is not the owner can't vacuum: that is said once, and done as soon as it may.
fn is_warned_of_what_it_may_not_tidy_up(cluster: &Cluster, database: &str, server: &Server, client: &mut Client) {
    let runtime = Runtime::new().unwrap();
    let alter = "ALTER TABLE claim_leases OWNER TO \"App\"";
    let warning = || server.stderr().lines().filter(|line| line.contains(alter)).count();
    await_condition("there is a warning", || warning() == 1);
    // The count is of the last look at the database, which also tidies up.
    let update = Update { creates: vec![user("counted", 7, Vec::new())], ..Update::default() };
    runtime.block_on(client.begin(update)).unwrap();
    await_condition("the database is looked at", || {
        let (_, metrics) = runtime.block_on(get(server.address(), "/metrics")).unwrap();
        metrics.lines().any(|line| line == "leasehold_outstanding_leases 1")
    });
    let stderr = server.stderr();
    assert!(!stderr.contains("permission denied to vacuum") && warning() == 1, "{stderr}");
    let vacuumed = "SELECT vacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'claim_leases'";
    assert_eq!(cluster.execute(database, vacuumed).unwrap(), ["f"]);
    cluster.execute(database, alter).unwrap();
    await_condition("the table is vacuumed", || cluster.execute(database, vacuumed).unwrap() == ["t"]);
}

/// What has been started by then is given back in order, too.
#[test]
fn a_machine_without_room_for_all_writers_is_an_error_and_no_panic() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let directory = TempDir::new().unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let config = config(&directory, &format!("url = {url:?}\nwrite_connections = 64"));
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 60; exec \"$@\"", "sh"]).arg(binary().unwrap());
    command.args(["serve", "--listen", "127.0.0.1:0", "--config", &config]).kill_on_drop(true);
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
fn two_stores_are_one_too_many() {
    let directory = TempDir::new().unwrap();
    let config = config(&directory, "url = \"postgres://me:secret@127.0.0.1:1/claims\"");
    let said = run(&["serve", "--config", &config, "--data", "elsewhere"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    for words in ["`elsewhere`", "`postgres://127.0.0.1:1/claims`", "leave one of them out"] {
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
}
