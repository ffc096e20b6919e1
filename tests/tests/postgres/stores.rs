//! Tests of stores in a database: a store is created only on request, has an identity, and a
//! restored copy gives higher fences.

use leasehold_tests::client::Client;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::leasehold;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{NO_SYNC, await_condition, await_no_connections, cells, client_of, create, serve};

/// The number by which a restored copy's fences are raised.
const JUMP: u64 = 1 << 43;

fn run(runtime: &Runtime, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = runtime.block_on(leasehold(arguments)).unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), stdout, stderr)
}

/// Returns the line of a server's banner with the store's identity and contents.
fn store_line(server: &Server) -> String {
    await_condition("the banner", || server.stdout().contains("\ntry: "));
    let stdout = server.stdout();
    stdout.lines().find_map(|line| line.strip_prefix("  store     ")).unwrap_or_else(|| panic!("{stdout}")).to_owned()
}

fn begin(runtime: &Runtime, client: &mut Client, name: &str) -> u64 {
    runtime.block_on(client.begin(create(name))).unwrap().fence
}

#[test]
fn a_database_without_a_store_is_refused_and_nothing_is_made() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let (url, runtime) = (cluster.url(&database), Runtime::new().unwrap());
    for verb in ["serve", "migrate"] {
        let (code, stdout, stderr) = run(&runtime, &[verb, "--store", &url]);
        assert_eq!((code, &*stdout), (Some(2), ""), "{verb}: {stderr}");
        assert!(stderr.contains(&format!("/{database}` holds no store")), "{stderr}");
        let hint = stderr.split("hint: ").nth(1).unwrap_or_default();
        assert!(hint.contains("`leasehold init`") && hint.contains("`--create`"), "{stderr}");
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(cluster.execute(&database, tables).unwrap(), ["0"]);
}

#[test]
fn init_makes_a_store_that_servers_share() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let (url, runtime) = (cluster.url(&cluster.database().unwrap()), Runtime::new().unwrap());
    let shown = url.replace("leasehold@", "");
    let init = || {
        let (code, stdout, stderr) = run(&runtime, &["init", "--json", "--store", &url]);
        assert_eq!((code, &*stderr), (Some(0), ""));
        serde_json::from_str::<Value>(&stdout).unwrap()
    };
    let made = init();
    assert_eq!(made, json!({ "done": "made", "store": made["store"], "location": shown }));
    assert_eq!(init(), json!({ "done": "found", "store": made["store"], "location": shown }));
    let id = made["store"].as_str().unwrap();
    let server = || Server::builder().config(cells(3)).arg("--store").arg(&url).expect_store().start().unwrap();
    let first = server();
    assert_eq!(store_line(&first), format!("{id} (0 claims, 0 leases, fence 0)"));
    begin(&runtime, &mut client_of(&runtime, &first), "alice");
    assert_eq!(store_line(&server()), format!("{id} (1 claim, 1 lease, fence 1)"));
}

#[test]
fn b13_a_restored_database_keeps_its_identity_and_raises_its_fences() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, runtime) = (cluster.database().unwrap(), Runtime::new().unwrap());
    let mut original = serve(&cluster.url(&database), "");
    let id = store_line(&original).split_once(' ').unwrap().0.to_owned();
    begin(&runtime, &mut client_of(&runtime, &original), "before");
    assert!(original.terminate().unwrap().success());
    await_no_connections(&cluster, &database);
    cluster.execute("postgres", &format!("CREATE DATABASE restored TEMPLATE {database}")).unwrap();
    original.restart().unwrap();
    let lost = begin(&runtime, &mut client_of(&runtime, &original), "lost");

    let restored = cluster.url("restored");
    let adopted = runtime.block_on(leasehold(["migrate", "--adopt", "--store", &restored])).unwrap();
    assert!(adopted.status.success(), "{}", String::from_utf8_lossy(&adopted.stderr));
    let adopted =
        cluster.execute("restored", "SELECT last_value FROM lease_fences").unwrap()[0].parse::<u64>().unwrap();
    assert!(adopted > lost, "{adopted} {lost}");
    let server =
        |url: &str| Server::builder().config(cells(3)).arg("--store").arg(url).arg("--restored").expect_store();
    // Only this start sets the sequence of fences, so only this start needs a role with that right.
    cluster.execute("restored", "CREATE ROLE app LOGIN").unwrap();
    for grant in ["SELECT, INSERT, UPDATE, DELETE ON ALL TABLES", "USAGE ON ALL SEQUENCES", "EXECUTE ON ALL FUNCTIONS"]
    {
        cluster.execute("restored", &format!("GRANT {grant} IN SCHEMA public TO app")).unwrap();
    }
    let refused = server(&restored.replace("leasehold@", "app@")).start().unwrap_err().to_string();
    assert!(refused.contains("GRANT UPDATE ON SEQUENCE lease_fences TO app"), "{refused}");

    let server = server(&restored).start().unwrap();
    assert!(store_line(&server).starts_with(&id));
    let next = begin(&runtime, &mut client_of(&runtime, &server), "next");
    // Setting the sequence skips 2^20 fences, which other servers may draw at that moment.
    let jumped = adopted + JUMP + (1 << 20);
    assert!(next > jumped - 10 && next < jumped + 10, "{next} {adopted}");
    let audited = format!("audit: store restored caller=server store={id} fence_before=");
    await_condition("the audit trail", || server.stderr().contains(&audited));
}
