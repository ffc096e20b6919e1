//! Tests of epochs: promotions, restarts and copies of the database. No answer of a former primary is stale, and no
//! fence is given out twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_core::lease::Outcome;
use leasehold_server::config::PostgresConfig;
use leasehold_server::store::{Backend, Creation, PostgresStore, StoreMaintenance};
use leasehold_tests::client::Client;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, leasehold};
use tokio::runtime::Runtime;

use crate::{NO_SYNC, StoreStatus, await_condition, cells, client_of, create, metric, open_session, reports, serve};

/// A primary whose commits wait for a standby, and a database in both.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    database: String,
    runtime: Runtime,
}

impl Pair {
    fn start() -> Self {
        let primary = Cluster::start(NO_SYNC).unwrap();
        let database = primary.database().unwrap();
        let standby = primary.standby().unwrap();
        Self { primary, standby, database, runtime: Runtime::new().unwrap() }
    }

    /// The URL of both hosts.
    fn url(&self) -> String {
        let (first, second) = (self.primary.port(), self.standby.port());
        format!("postgres://leasehold@127.0.0.1:{first},127.0.0.1:{second}/{}", self.database)
    }

    fn begin(&self, client: &mut Client, name: &str) -> Result<u64, tonic::Status> {
        self.runtime.block_on(client.begin(create(name))).map(|begun| begun.fence)
    }

    /// Begins until a begin succeeds. Returns its fence.
    fn begin_at_last(&self, client: &mut Client, name: &str) -> u64 {
        let mut fence = None;
        await_condition("a begin succeeds", || {
            fence = self.begin(client, name).ok();
            fence.is_some()
        });
        fence.unwrap()
    }

    /// The report of `leasehold doctor`.
    fn doctor(&self, url: &str) -> String {
        let examined = self.runtime.block_on(leasehold(["doctor", "--store", url])).unwrap();
        String::from_utf8(examined.stdout).unwrap()
    }

    /// The standby receives no further change, and no commit waits for it.
    fn detach(&self) {
        self.primary.execute("postgres", "ALTER SYSTEM RESET synchronous_standby_names").unwrap();
        self.primary.execute("postgres", "SELECT pg_reload_conf()").unwrap();
        self.standby.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''").unwrap();
        self.standby.execute("postgres", "SELECT pg_reload_conf()").unwrap();
        await_condition("the standby is detached", || {
            self.primary.execute("postgres", "SELECT count(*) FROM pg_stat_replication").unwrap() == ["0"]
        });
    }
}

/// Reads of one name, one after the other: when each was sent, and the reason of its refusal.
#[derive(Clone, Default)]
struct Reads {
    is_over: Arc<AtomicBool>,
    answers: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Reads {
    fn start(runtime: &Runtime, mut client: Client, name: &'static str) -> Self {
        let reads = Self::default();
        let Self { is_over, answers } = reads.clone();
        runtime.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let sent = Instant::now();
                let reason =
                    client.get(name).await.map_or_else(|status| Refusal::of(&status).reason, |_| String::new());
                answers.lock().unwrap().push((sent, reason));
            }
        });
        reads
    }

    fn last_sent(&self) -> Option<Instant> {
        self.answers.lock().unwrap().last().map(|(sent, _)| *sent)
    }

    fn end(self) -> Vec<(Instant, String)> {
        self.is_over.store(true, Ordering::SeqCst);
        self.answers.lock().unwrap().clone()
    }
}

/// One server knows the former primary only, which goes on. Its standby is promoted between two probes.
#[test]
fn b30_a_former_primary_answers_no_read_after_a_write_of_the_promoted_host() {
    let pair = Pair::start();
    let behind = serve(&pair.primary.url(&pair.database), "statement_timeout_seconds = 2");
    let ahead = serve(&pair.url(), "");
    let (readers, mut writer) = (client_of(&pair.runtime, &behind), client_of(&pair.runtime, &ahead));
    pair.begin(&mut writer, "before").unwrap();
    let reads = Reads::start(&pair.runtime, readers, "taken");
    await_condition("a read was answered", || reads.last_sent().is_some());
    pair.standby.promote().unwrap();
    let promoted =
        || pair.standby.execute(&pair.database, "SELECT count(*) FROM claims WHERE bucket_value = 'taken'").unwrap();
    await_condition("the name is taken at the promoted host", || {
        pair.begin(&mut writer, "taken").is_ok() && promoted() == ["1"]
    });
    let taken = Instant::now();
    await_condition("a later read is answered", || reads.last_sent().is_some_and(|sent| sent > taken));
    let answers = reads.end();
    for (sent, reason) in &answers {
        assert!(*sent <= taken || reason == "STORE_UNAVAILABLE", "{reason:?}");
    }
    assert!(answers.iter().any(|(_, reason)| reason == "CLAIM_NOT_FOUND"), "reads before were answered");
}

/// PostgreSQL reports a COMMIT whose wait for the standby was canceled as done, with a warning.
#[test]
fn a_commit_with_a_warning_is_answered_only_once_the_standby_has_it() {
    let pair = Pair::start();
    // The database may have been told to send no warnings.
    let filtered = format!("ALTER DATABASE {} SET client_min_messages = error", pair.database);
    pair.primary.execute("postgres", &filtered).unwrap();
    let server = serve(&pair.primary.url(&pair.database), "patience_seconds = 60");
    let mut client = client_of(&pair.runtime, &server);
    pair.begin(&mut client, "before").unwrap();
    let frozen = pair.standby.freeze().unwrap();
    let begun = pair.runtime.spawn(async move { client.begin(create("during")).await });
    let canceled = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query SIMILAR TO '%try_write_group%|COMMIT'";
    let rows = || pair.primary.execute(&pair.database, "SELECT count(*) FROM claims").unwrap();
    // Other transactions wait too. Then the row is visible at the primary, and the standby lacks it.
    await_condition("the wait of the begin is canceled", || {
        pair.primary.execute("postgres", canceled).unwrap();
        rows() == ["2"]
    });
    await_condition("the warning is logged", || server.has_logged("the database has sent a warning"));
    await_condition("the server reports the outage", || reports(&pair.runtime, &server, StoreStatus::Failed));
    assert!(!begun.is_finished());
    drop(frozen);
    pair.runtime.block_on(begun).unwrap().unwrap();
    assert_eq!(rows(), ["2"]);
}

/// The rows are locked by a COMMIT of another server, and nobody can end its transaction.
#[test]
fn a_command_waits_while_a_commit_of_another_server_waits_for_a_standby() {
    let pair = Pair::start();
    let url = pair.primary.url(&pair.database);
    let servers = [(); 2].map(|()| serve(&url, "patience_seconds = 60"));
    let [mut first, mut second] = servers.each_ref().map(|server| client_of(&pair.runtime, server));
    for client in [&mut first, &mut second] {
        pair.begin(client, &format!("before-{}", rand::random::<u64>())).unwrap();
    }
    let frozen = pair.standby.freeze().unwrap();
    let begin = |mut client: Client| pair.runtime.spawn(async move { client.begin(create("during")).await });
    let (begun, waits) = (begin(first), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    await_condition("a COMMIT waits", || pair.primary.execute("postgres", waits).unwrap() != ["0"]);
    let refused = begin(second);
    await_condition("the second server tells the cause", || {
        servers[1].has_logged("a COMMIT waits for a standby, and keeps rows locked")
    });
    assert!(!refused.is_finished());
    await_condition("a probe tells the cause", || servers[0].has_logged("COMMITs of the database wait for a standby"));
    drop(frozen);
    pair.runtime.block_on(begun).unwrap().unwrap();
    let refused = pair.runtime.block_on(refused).unwrap().unwrap_err();
    assert_eq!(Refusal::of(&refused).reason, "CLAIM_BUSY");
}

/// A COMMIT without a change waits for no standby.
#[test]
fn b30_a_task_that_changes_nothing_proves_no_host() {
    let pair = Pair::start();
    let url = pair.primary.url(&pair.database);
    let settings = PostgresConfig { statement_timeout_seconds: 1, ..PostgresConfig::at(&url) };
    let store = pair.runtime.block_on(PostgresStore::open(&settings, Creation::Allowed)).unwrap();
    let StoreMaintenance::Shared(maintenance) = store.maintenance() else { panic!("the store is shared") };
    pair.runtime.block_on(maintenance.forget_abandoned()).unwrap();
    let frozen = pair.standby.freeze().unwrap();
    let refused = pair.runtime.block_on(maintenance.forget_abandoned()).unwrap_err();
    assert!(refused.is_away(), "{refused}");
    drop(frozen);
    pair.runtime.block_on(maintenance.forget_abandoned()).unwrap();
}

/// With such a setting of the role, a failover would lose answered changes.
#[test]
fn a_low_synchronous_commit_is_raised() {
    let pair = Pair::start();
    let server = serve(&pair.primary.url(&pair.database), "");
    let mut client = client_of(&pair.runtime, &server);
    assert!(pair.begin(&mut client, "migrated").is_ok());
    for (setting, raised) in
        [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")]
    {
        let sql = format!(
            "BEGIN; SET LOCAL synchronous_commit = {setting}; SELECT commit_durably(); SHOW synchronous_commit"
        );
        assert_eq!(pair.primary.execute(&pair.database, &sql).unwrap(), ["", raised], "{setting}");
    }
}

#[test]
fn b13_no_fence_is_repeated_after_an_asynchronous_standby_is_promoted() {
    let mut pair = Pair::start();
    let server = serve(&pair.url(), "");
    let mut client = client_of(&pair.runtime, &server);
    pair.begin(&mut client, "kept").unwrap();
    let lacks_changes = || metric(&pair.runtime, &server, "leasehold_database_lacks_changes").unwrap();
    assert_eq!(lacks_changes(), "0");
    pair.detach();
    // The standby has the next 32 fences of the sequence already.
    let lost: Vec<u64> = (0..40).map(|number| pair.begin(&mut client, &format!("lost-{number}")).unwrap()).collect();
    pair.primary.crash().unwrap();
    pair.standby.promote().unwrap();
    let fence = pair.begin_at_last(&mut client, "after");
    assert!(lost.iter().all(|lost| *lost < fence), "{fence} after {lost:?}");
    let lacks_changes = || metric(&pair.runtime, &server, "leasehold_database_lacks_changes").unwrap();
    await_condition("the server reports the loss", || lacks_changes() == "1");
    assert!(server.has_logged("the database lacks a lease that this server has begun"), "{}", server.stderr());
    let (_, ready) = pair.runtime.block_on(leasehold_tests::wire::get(server.address(), "/readyz?verbose")).unwrap();
    assert!(ready.contains("[+]database ok, but it lacks changes"), "{ready}");
}

/// Neither the rows of these epochs nor a server that knows their fences are there after the promotion.
#[test]
fn b13_no_fence_is_repeated_after_the_loss_of_several_epochs() {
    let mut pair = Pair::start();
    let mut server = serve(&pair.url(), "");
    pair.begin(&mut client_of(&pair.runtime, &server), "kept").unwrap();
    pair.detach();
    let mut lost = Vec::new();
    for round in 0..2 {
        pair.primary.crash().unwrap();
        pair.primary.restart().unwrap();
        lost.push(pair.begin_at_last(&mut client_of(&pair.runtime, &server), &format!("lost-{round}")));
    }
    server.terminate().unwrap();
    pair.primary.crash().unwrap();
    pair.standby.promote().unwrap();
    let server = serve(&pair.url(), "");
    let fence = pair.begin_at_last(&mut client_of(&pair.runtime, &server), "after");
    assert!(lost.iter().all(|lost| *lost < fence), "{fence} after {lost:?}");
}

/// Two standbys are promoted soon after each other, and neither has the rows of the other one.
#[test]
fn b13_no_fence_is_repeated_by_two_hosts_that_were_promoted_from_one_timeline() {
    let mut pair = Pair::start();
    let other = pair.primary.standby().unwrap();
    let mut server = serve(&pair.url(), "");
    pair.begin(&mut client_of(&pair.runtime, &server), "kept").unwrap();
    pair.primary.crash().unwrap();
    pair.standby.promote().unwrap();
    let mut client = client_of(&pair.runtime, &server);
    pair.begin_at_last(&mut client, "first");
    let lost: Vec<u64> = (0..40).map(|number| pair.begin(&mut client, &format!("lost-{number}")).unwrap()).collect();
    server.terminate().unwrap();
    pair.standby.crash().unwrap();
    other.promote().unwrap();
    // No standby follows it.
    other.execute("postgres", "ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    other.execute("postgres", "SELECT pg_reload_conf()").unwrap();
    let server = serve(&other.url(&pair.database), "");
    let fence = pair.begin_at_last(&mut client_of(&pair.runtime, &server), "after");
    assert!(lost.iter().all(|lost| *lost < fence), "{fence} after {lost:?}");
}

/// The fences of the copies are ahead of the clock, as those of an adopted database are.
#[test]
fn b13_no_fence_is_repeated_by_two_copies_of_one_database() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, runtime) = (cluster.database().unwrap(), Runtime::new().unwrap());
    let mut server = serve(&cluster.url(&database), "");
    runtime.block_on(client_of(&runtime, &server).begin(create("before"))).unwrap();
    server.terminate().unwrap();
    cluster
        .execute(&database, "SELECT setval('lease_fences', last_value + (1::bigint << 52)) FROM lease_fences")
        .unwrap();
    let mut last = 0;
    for copy in ["first", "second"] {
        await_condition("the copy is made", || {
            cluster.execute("postgres", &format!("CREATE DATABASE {copy} TEMPLATE {database}")).is_ok()
        });
        let url = cluster.url(copy);
        let adopted = runtime.block_on(leasehold(["migrate", "--adopt", "--store", &url])).unwrap();
        assert!(adopted.status.success(), "{adopted:?}");
        let mut server = serve(&url, "");
        let mut client = client_of(&runtime, &server);
        for number in 0..3 {
            let fence = runtime.block_on(client.begin(create(format!("name-{number}")))).unwrap().fence;
            assert!(fence > last, "{copy}: {fence} after {last}");
            last = fence;
        }
        server.terminate().unwrap();
    }
}

/// The copy was made by a version without epochs, so no row tells that the tables are older ones.
#[test]
fn b13_no_fence_is_repeated_after_the_restore_of_tables_without_epochs() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, runtime) = (cluster.database().unwrap(), Runtime::new().unwrap());
    let url = cluster.url(&database);
    let mut server = serve(&url, "");
    let mut client = client_of(&runtime, &server);
    let fence = |client: &mut Client, name: &str| runtime.block_on(client.begin(create(name))).unwrap().fence;
    fence(&mut client, "kept");
    let lost = (0..40).map(|number| fence(&mut client, &format!("lost-{number}"))).max().unwrap();
    server.terminate().unwrap();
    let restored = "TRUNCATE store_epochs; SELECT setval('lease_fences', 1);
        DELETE FROM claims WHERE bucket_value LIKE 'lost%'; DELETE FROM claim_leases WHERE fence > 1";
    cluster.execute(&database, restored).unwrap();
    let server = serve(&url, "");
    let after = fence(&mut client_of(&runtime, &server), "after");
    assert!(after > lost, "{after} after {lost}");
}

/// A standby is promoted by hand beside a primary that goes on, and is taken back. The servers that have followed it
/// come back to the primary, whose commits another standby confirms.
#[test]
fn a_host_that_was_promoted_by_mistake_is_forgotten_once_it_is_gone() {
    let mut pair = Pair::start();
    let _other = pair.primary.standby().unwrap();
    let server = serve(&pair.url(), "patience_seconds = 120");
    let mut client = client_of(&pair.runtime, &server);
    pair.begin(&mut client, "before").unwrap();
    pair.standby.promote().unwrap();
    await_condition("the server follows", || server.has_logged("another host of the database was promoted"));
    await_condition("a begin is at the promoted host", || {
        let name = format!("stray-{}", rand::random::<u64>());
        pair.begin(&mut client, &name).unwrap();
        let sql = format!("SELECT count(*) FROM claims WHERE bucket_value = '{name}'");
        pair.standby.execute(&pair.database, &sql).unwrap() == ["1"]
    });
    pair.standby.crash().unwrap();
    pair.begin(&mut client, "after").unwrap();
    let rows = "SELECT count(*) FROM claims WHERE bucket_value = 'after'";
    assert_eq!(pair.primary.execute(&pair.database, rows).unwrap(), ["1"]);
    assert!(server.has_logged("the database lacks a lease that this server has begun"), "{}", server.stderr());
}

/// A name or a proxy in the URL may be pointed elsewhere while servers run.
#[test]
fn a_running_server_enters_no_other_store_and_no_older_copy() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, runtime) = (cluster.database().unwrap(), Runtime::new().unwrap());
    let url = cluster.url(&database);
    let server = serve(&url, "patience_seconds = 1");
    let mut client = client_of(&runtime, &server);
    let restart = |cluster: &mut Cluster| {
        cluster.crash().unwrap();
        cluster.restart().unwrap();
    };
    cluster.execute(&database, "UPDATE leasehold_store SET id = gen_random_uuid()").unwrap();
    restart(&mut cluster);
    await_condition("the other store is refused", || server.has_logged("holds another store than this server"));
    runtime.block_on(client.begin(create("lost"))).unwrap_err();
    drop(server);

    let server = serve(&url, "patience_seconds = 1");
    let mut client = client_of(&runtime, &server);
    runtime.block_on(client.begin(create("before"))).unwrap();
    let allow =
        |allowed: bool| cluster.execute("postgres", &format!("ALTER DATABASE {database} ALLOW_CONNECTIONS {allowed}"));
    let leave = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    let alone = |sql: &str| {
        allow(false).unwrap();
        await_condition("nobody uses the database", || {
            cluster.execute("postgres", leave).unwrap();
            cluster.execute("postgres", sql).is_ok()
        });
    };
    alone(&format!("CREATE DATABASE copy TEMPLATE {database}"));
    allow(true).unwrap();
    let adopted = runtime.block_on(leasehold(["migrate", "--adopt", "--store", &cluster.url("copy")])).unwrap();
    assert!(adopted.status.success(), "{adopted:?}");
    await_condition("a begin succeeds", || runtime.block_on(client.begin(create("later"))).is_ok());
    alone(&format!("ALTER DATABASE {database} RENAME TO former"));
    cluster.execute("postgres", &format!("ALTER DATABASE copy RENAME TO {database}")).unwrap();
    await_condition("the copy is refused", || server.has_logged("is a copy that lacks changes of this server"));
    runtime.block_on(client.begin(create("lost"))).unwrap_err();
    // The database is back, and lacks nothing.
    alone(&format!("ALTER DATABASE {database} RENAME TO copy"));
    cluster.execute("postgres", &format!("ALTER DATABASE former RENAME TO {database}")).unwrap();
    allow(true).unwrap();
    await_condition("a begin succeeds", || runtime.block_on(client.begin(create("back"))).is_ok());
    assert_eq!(metric(&runtime, &server, "leasehold_database_lacks_changes").unwrap(), "0");
}

/// A read that its caller has given up changes no row, so other reads stay proved.
#[test]
fn b30_an_abandoned_read_takes_no_proof_from_others() {
    const WAITS: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query NOT LIKE '%WHERE false%'";
    let pair = Pair::start();
    let server = serve(&pair.primary.url(&pair.database), "");
    let mut client = client_of(&pair.runtime, &server);
    pair.begin(&mut client, "taken").unwrap();
    let locker = open_session(&pair.runtime, &pair.primary.url(&pair.database));
    // While the standby is frozen, no new proof comes. The last one is good for a moment.
    await_condition("a read is answered by the last proof", || {
        let frozen = pair.standby.freeze().unwrap();
        pair.runtime.block_on(async {
            locker.batch_execute("BEGIN; LOCK TABLE claims IN ACCESS EXCLUSIVE MODE").await.unwrap();
            let given_up = tokio::time::timeout(Duration::from_millis(100), client.get("taken")).await;
            assert!(given_up.is_err(), "the read did not wait for the lock");
        });
        await_condition("the read is canceled", || pair.primary.execute("postgres", WAITS).unwrap() == ["0"]);
        pair.runtime.block_on(locker.batch_execute("ROLLBACK")).unwrap();
        let read = async { tokio::time::timeout(Duration::from_millis(300), client.get("taken")).await };
        let answered = pair.runtime.block_on(read);
        drop(frozen);
        pair.begin_at_last(&mut client, &format!("next-{}", rand::random::<u64>()));
        answered.is_ok_and(|answer| answer.is_ok())
    });
}

/// After the crash of one process, the others restart, and rows that no standby has are visible.
#[test]
fn the_recovery_after_a_crash_of_one_process_begins_an_epoch() {
    let pair = Pair::start();
    let server = serve(&pair.primary.url(&pair.database), "");
    let mut client = client_of(&pair.runtime, &server);
    pair.begin(&mut client, "before").unwrap();
    let epochs = || pair.primary.execute(&pair.database, "SELECT epoch FROM store_epochs ORDER BY begun_at").unwrap();
    assert_eq!(epochs().len(), 1);
    let pid = pair
        .primary
        .execute("postgres", "SELECT pid FROM pg_stat_activity WHERE application_name = 'leasehold' LIMIT 1");
    let pid: i32 = pid.unwrap()[0].parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let after = pair.begin_at_last(&mut client, "after");
    await_condition("the epoch is there", || pair.primary.execute("postgres", "SELECT 1").is_ok());
    let epochs = epochs();
    assert_eq!(epochs.len(), 2, "{epochs:?}");
    let parts: Vec<Vec<&str>> = epochs.iter().map(|epoch| epoch.split('/').collect()).collect();
    assert_eq!(
        (parts[0][..3].to_vec(), parts[0][4]),
        (parts[1][..3].to_vec(), parts[1][4]),
        "the postmaster is the same"
    );
    assert!(after > 1 << 50, "the first server of an epoch raises the fences");
}

/// The epochs of another cluster stand for a restored dump, because all clusters of these tests have one identifier.
#[test]
fn a_copy_in_another_cluster_is_used_only_once_an_operator_has_adopted_it() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, runtime) = (cluster.database().unwrap(), Runtime::new().unwrap());
    let url = cluster.url(&database);
    let mut server = serve(&url, "");
    runtime.block_on(client_of(&runtime, &server).begin(create("before"))).unwrap();
    server.terminate().unwrap();
    cluster.execute(&database, "UPDATE store_epochs SET epoch = '1' || epoch").unwrap();

    let refused = runtime.block_on(leasehold(["serve", "--listen", "127.0.0.1:0", "--store", &url])).unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("is a copy of the database that servers have used")
            && stderr.contains("`leasehold migrate --adopt`"),
        "{stderr}"
    );

    let adopted = runtime.block_on(leasehold(["migrate", "--adopt", "--store", &url])).unwrap();
    let stderr = String::from_utf8(adopted.stderr).unwrap();
    assert!(adopted.status.success() && stderr.contains("audit: database adopted caller=server store="), "{stderr}");
    let server = Server::builder().config(format!("[postgres]\nurl = \"{url}\"\n{}", cells(3))).start().unwrap();
    let begun = runtime.block_on(client_of(&runtime, &server).begin(create("after"))).unwrap();
    assert!(begun.fence > 1 << 50, "{}", begun.fence);
}

/// The original goes on, and its epochs follow one another so soon that its fences are ahead of the clock.
#[test]
fn b13_a_copy_beside_the_original_is_refused_and_repeats_no_fence() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, runtime) = (cluster.database().unwrap(), Runtime::new().unwrap());
    let mut server = serve(&cluster.url(&database), "");
    runtime.block_on(client_of(&runtime, &server).begin(create("before"))).unwrap();
    server.terminate().unwrap();
    await_condition("the copy is made", || {
        cluster.execute("postgres", &format!("CREATE DATABASE copy TEMPLATE {database}")).is_ok()
    });
    let mut last = 0;
    for name in ["first", "second", "third"] {
        cluster.crash().unwrap();
        cluster.restart().unwrap();
        let mut server = serve(&cluster.url(&database), "");
        last = runtime.block_on(client_of(&runtime, &server).begin(create(name))).unwrap().fence;
        server.terminate().unwrap();
    }
    let copy = cluster.url("copy");
    let program = |words: &[&str]| {
        let output = runtime.block_on(leasehold([words, &["--store", &copy]].concat())).unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    for words in [&["doctor"][..], &["serve", "--listen", "127.0.0.1:0"], &["init"], &["migrate"]] {
        let (succeeded, text) = program(words);
        assert!(!succeeded && text.contains("is a copy of the database that servers have used"), "{words:?}: {text}");
    }
    let (succeeded, text) = program(&["migrate", "--adopt"]);
    assert!(succeeded && text.contains("adopted the copy in") && text.contains("audit: database adopted"), "{text}");
    let fences = || cluster.execute("copy", "SELECT last_value FROM lease_fences").unwrap();
    let raised = fences();
    let (succeeded, text) = program(&["migrate", "--adopt"]);
    assert!(succeeded && text.contains("nothing to adopt") && !text.contains("database adopted"), "{text}");
    assert_eq!(fences(), raised, "a second adoption changes nothing");
    let server = serve(&copy, "");
    let fence = runtime.block_on(client_of(&runtime, &server).begin(create("after"))).unwrap().fence;
    assert!(fence > last, "{fence} after {last}");
}

#[test]
fn a_lost_commit_is_reported_after_a_promotion() {
    let mut pair = Pair::start();
    let server = serve(&pair.url(), "");
    let mut client = client_of(&pair.runtime, &server);
    let begun = pair.runtime.block_on(client.begin(create("kept"))).unwrap();
    pair.detach();
    pair.runtime.block_on(client.settle(&begun.lease, Outcome::Committed)).unwrap();
    pair.primary.crash().unwrap();
    pair.standby.promote().unwrap();
    pair.begin_at_last(&mut client, "after");
    let lacks_changes = || metric(&pair.runtime, &server, "leasehold_database_lacks_changes").unwrap();
    await_condition("the server reports the loss", || lacks_changes() == "1");
    assert!(server.has_logged("as outstanding that this server has settled"), "{}", server.stderr());
}

/// A wrong host would be noticed only in a failover.
#[test]
fn doctor_warns_of_each_host_that_does_not_answer() {
    let pair = Pair::start();
    let mut server = serve(&pair.url(), "");
    server.terminate().unwrap();
    let text = pair.doctor(&pair.url());
    assert!(!text.contains("can't take the place") && !text.contains("no standby follows"), "{text}");
    let with_others = pair.url().replace("@", "@nowhere.invalid:5432,127.0.0.1:1,") + "?sslmode=disable";
    let text = pair.doctor(&with_others);
    for host in ["`nowhere.invalid:5432`", "`127.0.0.1:1`"] {
        assert!(text.contains(&format!("{host} can't take the place of the primary")), "{text}");
    }
}

/// The tables of a former primary look like those of the present one, and so do its settings.
#[test]
fn doctor_tells_a_former_primary_by_its_timeline_or_by_a_durable_write() {
    let pair = Pair::start();
    let mut server = serve(&pair.url(), "");
    server.terminate().unwrap();
    let has_failed = |text: &str| text.lines().any(|line| line.starts_with("fail"));
    let former = pair.primary.url(&pair.database);
    let text = pair.doctor(&former);
    assert!(text.contains("ok    durable write  acknowledged after ") && !has_failed(&text), "{text}");
    let standbys = format!("postgres://leasehold@127.0.0.1:{0},127.0.0.1:{0}/{1}", pair.standby.port(), pair.database);
    let refused = pair.runtime.block_on(leasehold(["init", "--store", &standbys])).unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("can't serve now: no host of the URL accepts writes"), "{stderr}");
    pair.standby.promote().unwrap();
    let text = pair.doctor(&pair.url());
    let expected = format!(
        "warn  database       `127.0.0.1:{}` is a former primary that still accepts writes",
        pair.primary.port()
    );
    assert!(text.contains(&expected) && !has_failed(&text), "{text}");
    let text = pair.doctor(&former);
    assert!(text.contains("fail  durable write  the database "), "{text}");
    assert!(
        text.contains(" can't serve now: no durable write within 12 s: does a synchronous standby answer?"),
        "{text}"
    );
    assert!(text.contains("compare the hosts: `patronictl list`"), "{text}");
}

/// A pooler gives each transaction a connection of its own, and keeps those of its clients while the database is away.
#[test]
fn behind_a_pooler_each_transaction_is_of_the_present_epoch() {
    let mut cluster = Cluster::start(NO_SYNC).unwrap();
    let (database, runtime) = (cluster.database().unwrap(), Runtime::new().unwrap());
    let bouncer = leasehold_tests::postgres::Bouncer::start(&cluster, 20).unwrap();
    let server = serve(&bouncer.url(&database), "");
    let mut client = client_of(&runtime, &server);
    runtime.block_on(client.begin(create("before"))).unwrap();
    let session = open_session(&runtime, &bouncer.url(&database));
    let row = runtime.block_on(session.query_typed_one("SELECT current_epoch()", &[])).unwrap();
    let former: String = row.get(0);
    cluster.crash().unwrap();
    cluster.restart().unwrap();
    await_condition("a begin succeeds", || runtime.block_on(client.begin(create("after"))).is_ok());
    runtime.block_on(client.get("before")).unwrap();
    let late = format!("SELECT at_epoch('{former}', 1)");
    let refused = runtime.block_on(open_session(&runtime, &bouncer.url(&database)).batch_execute(&late)).unwrap_err();
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("LH001"), "{refused:?}");
}

#[test]
fn a_database_whose_commits_wait_for_no_standby_is_warned_of() {
    let pair = Pair::start();
    let url = pair.primary.url(&pair.database);
    let server = serve(&url, "patience_seconds = 29");
    assert!(server.has_logged("set `postgres.patience_seconds = 40`"), "{}", server.stderr());
    let ready = || pair.runtime.block_on(leasehold_tests::wire::get(server.address(), "/readyz?verbose")).unwrap().1;
    assert!(ready().contains("[+]database ok\n"), "{}", ready());
    let set = |sql: &str| {
        pair.primary.execute("postgres", sql).unwrap();
        pair.primary.execute("postgres", "SELECT pg_reload_conf()").unwrap();
    };
    set("ALTER SYSTEM RESET synchronous_standby_names");
    await_condition("the server reports it", || {
        ready().contains("[+]database ok, but its commits wait for no standby")
    });
    assert!(server.has_logged("COMMITs of the database wait for no standby any more"), "{}", server.stderr());
    let text = pair.doctor(&url);
    assert!(text.contains("warn  database       the database has standbys, and its COMMITs wait for none"), "{text}");
    set("ALTER SYSTEM SET synchronous_standby_names = '*'");
    await_condition("the server reports the change", || ready().contains("[+]database ok\n"));
    let text = pair.doctor(&url);
    assert!(!text.contains("COMMITs wait for none"), "{text}");
}
