//! A test of the sequence that gives fences: if the sequence is behind a lease's fence, the server
//! raises it before the next lease (B13).

use leasehold_core::lease::Outcome;
use leasehold_tests::client::Client;
use leasehold_tests::postgres::Cluster;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, await_no_connections, client_of, create, serve};

fn begin(runtime: &Runtime, client: &mut Client, name: &str) -> u64 {
    runtime.block_on(client.begin(create(name))).unwrap().fence
}

#[test]
fn b13_fences_grow_after_a_restore_without_the_sequence() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let url = cluster.url(&database);
    let runtime = Runtime::new().unwrap();
    let mut server = serve(&url, "");
    let mut client = client_of(&runtime, &server);
    // The largest fence is that of a settled lease.
    let first = begin(&runtime, &mut client, "first");
    let second = runtime.block_on(client.begin(create("second"))).unwrap();
    runtime.block_on(client.settle(&second.lease, Outcome::Committed)).unwrap();
    assert!(server.terminate().unwrap().success());

    await_no_connections(&cluster, &database);
    cluster.execute(&database, "ALTER SEQUENCE lease_fences RESTART").unwrap();
    server.restart().unwrap();
    let mut client = client_of(&runtime, &server);
    let third = begin(&runtime, &mut client, "third");
    assert!(third > second.fence && second.fence > first, "{third} {} {first}", second.fence);
    let told = "the sequence `lease_fences` stood at 0, behind the fence 2 of a lease or lock, and was raised";
    assert!(server.has_logged(told), "{}", server.stderr());

    // A new connection may lead to another host, whose sequence is far behind the fences of its
    // leases.
    let moved = "UPDATE settled_leases SET fence = 5000000; ALTER SEQUENCE lease_fences RESTART;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    cluster.execute(&database, moved).unwrap();
    let fourth = begin(&runtime, &mut client, "fourth");
    assert!(fourth > 5_000_000, "{fourth}");
}
