//! Tests of a database URL with several hosts: reads and writes go only to the primary, and hosts that are away delay nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use leasehold_tests::postgres::Cluster;
use leasehold_tests::wire::{Refusal, leasehold};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::{NO_SYNC, STORE_UNAVAILABLE, StoreStatus, await_condition, await_report, client_of, create, serve};

/// The read-only cluster `lagging` stands for a standby that has not yet received the primary's
/// rows.
#[test]
fn b30_reads_never_go_to_a_host_that_lags_behind() {
    let mut primary = Cluster::start(NO_SYNC).unwrap();
    let lagging = Cluster::start(NO_SYNC).unwrap();
    let database = primary.database().unwrap();
    assert_eq!(lagging.database().unwrap(), database);
    let runtime = Runtime::new().unwrap();
    assert!(runtime.block_on(leasehold(["init", "--store", &lagging.url(&database)])).unwrap().status.success());
    lagging.execute("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    lagging.execute("postgres", "SELECT pg_reload_conf()").unwrap();

    let (first, second) = (primary.port(), lagging.port());
    let url = format!("postgres://leasehold@127.0.0.1:{first},127.0.0.1:{second}/{database}");
    let server = serve(&url, "patience_seconds = 1");
    let mut client = client_of(&runtime, &server);
    runtime.block_on(client.begin(create("before"))).unwrap();

    primary.crash().unwrap();
    let refused = runtime.block_on(client.get("before")).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE, "{refused:?}");
    let refused = runtime.block_on(client.begin(create("during"))).unwrap_err();
    assert_eq!(Refusal::of(&refused).code_and_reason(), STORE_UNAVAILABLE, "{refused:?}");
    await_report(&runtime, &server, StoreStatus::Failed);

    primary.restart().unwrap();
    await_report(&runtime, &server, StoreStatus::Working);
    runtime.block_on(client.begin(create("after"))).unwrap();
    for name in ["before", "after"] {
        runtime.block_on(client.get(name)).unwrap();
    }
}

/// The longest time of a command. The server gives up a connection to a host after 5 s.
const SOON: Duration = Duration::from_secs(4);

/// A host that answers nothing: its connections are never accepted. As long as the queue of the connections has room, they
/// are made.
struct Silent {
    listener: TcpListener,
    queued: Vec<TcpStream>,
}

impl Silent {
    /// A host that connections can be made to.
    async fn hanging() -> Self {
        Self::listening(128)
    }

    /// A host as one without power: connections are neither made nor refused.
    async fn dead() -> Self {
        let mut host = Self::listening(0);
        while let Ok(connected) = timeout(Duration::from_millis(300), TcpStream::connect(host.address())).await {
            host.queued.push(connected.unwrap());
        }
        assert!(!host.queued.is_empty());
        host
    }

    fn listening(queue: u32) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self { listener: socket.listen(queue).unwrap(), queued: Vec::new() }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }
}

/// Starts a server whose URL names another host first, and calls it.
fn serve_beside(runtime: &Runtime, other: SocketAddr) {
    let primary = Cluster::start(NO_SYNC).unwrap();
    let database = primary.database().unwrap();
    let url = format!("postgres://leasehold@{other},127.0.0.1:{}/{database}", primary.port());
    let soon = |what: &str, began: Instant| assert!(began.elapsed() < SOON, "{what} took {:?}", began.elapsed());
    let server = serve(&url, "");
    let mut client = client_of(runtime, &server);
    for round in 0..3 {
        let (name, began) = (format!("name-{round}"), Instant::now());
        runtime.block_on(client.begin(create(&name))).unwrap();
        soon("a begin", began);
        let began = Instant::now();
        runtime.block_on(client.get(&name)).unwrap();
        soon("a get", began);
        // All connections are opened anew.
        primary
            .execute(
                "postgres",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'",
            )
            .unwrap();
    }
}

#[test]
fn a_host_that_accepts_connections_and_never_answers_delays_nothing() {
    let runtime = Runtime::new().unwrap();
    let silent = runtime.block_on(Silent::hanging());
    serve_beside(&runtime, silent.address());
}

#[test]
fn a_host_without_power_delays_nothing() {
    let runtime = Runtime::new().unwrap();
    let dead = runtime.block_on(Silent::dead());
    serve_beside(&runtime, dead.address());
}

/// The former primary is not stopped, and its commits wait for no standby.
#[test]
fn b30_a_former_primary_that_goes_on_is_left_for_the_promoted_host() {
    let primary = Cluster::start(NO_SYNC).unwrap();
    let database = primary.database().unwrap();
    let standby = primary.standby().unwrap();
    let url = format!("postgres://leasehold@127.0.0.1:{},127.0.0.1:{}/{database}", primary.port(), standby.port());
    let runtime = Runtime::new().unwrap();
    let server = serve(&url, "");
    let mut client = client_of(&runtime, &server);
    runtime.block_on(client.begin(create("before"))).unwrap();
    primary.execute("postgres", "ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    primary.execute("postgres", "SELECT pg_reload_conf()").unwrap();
    standby.promote().unwrap();

    let claims = || standby.execute(&database, "SELECT count(*) FROM claims").unwrap();
    let mut number = 0;
    let mut begins_at_the_promoted_host = |client: &mut leasehold_tests::client::Client| {
        let before = claims();
        number += 1;
        let name = format!("after-{number}");
        let begun = runtime.block_on(client.begin(create(&name)));
        // The server reads what it has written.
        begun.is_ok() && runtime.block_on(client.get(&name)).is_ok() && claims() != before
    };
    await_condition("begins and reads go to the promoted host", || begins_at_the_promoted_host(&mut client));
    let second = serve(&url, "");
    let mut client = client_of(&runtime, &second);
    assert!(begins_at_the_promoted_host(&mut client), "a new server takes the host that it asks first");
}
