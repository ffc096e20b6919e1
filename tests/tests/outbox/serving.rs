//! The relay of a real server: what it hands on is what has committed, each once, whatever is killed.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::queue_service_client::QueueServiceClient;
use leasehold_tests::postgres::Bouncer;
use leasehold_tests::server::{Builder, Server};
use leasehold_tests::wire::{eventually, get, leasehold};
use nix::sys::signal::Signal;
use tonic::transport::Channel;
use uuid::Uuid;

use super::{Database, Session};

/// The settings of a relay of the outbox at this URL.
fn relay(url: &str) -> String {
    format!("[[relays]]\nname = \"shop\"\nurl = \"{url}\"\n")
}

/// A server with a relay, which has the same address after a restart.
fn serving(url: &str) -> Builder {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Server::builder().config(relay(url)).listen(format!("127.0.0.1:{port}"))
}

async fn queues(server: &Server) -> QueueServiceClient<Channel> {
    QueueServiceClient::new(server.connect(None).await.unwrap())
}

/// The ids of the requests of a lane that wait, in their order.
async fn waiting(server: &Server, key: &str) -> Vec<Uuid> {
    let mut queues = queues(server).await;
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let request = wire::ListRequestsRequest {
            queue: "q".into(),
            key: key.into(),
            list: wire::list_requests_request::List::Waiting.into(),
            limit: 1_000,
            after,
        };
        let page = queues.list_requests(request).await.unwrap().into_inner();
        ids.extend(page.requests.iter().map(|request| Uuid::from_slice(&request.request_id).unwrap()));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

async fn state(server: &Server, id: Uuid) -> wire::RequestState {
    let request = wire::GetRequestRequest { request_id: id.as_bytes().to_vec(), with_body: false };
    let found = queues(server).await.get_request(request).await.unwrap().into_inner().request;
    found.map(|request| request.state()).unwrap_or_default()
}

/// True once a line of the metrics has this value.
async fn has_metric(server: &Server, name: &str, value: &str) -> bool {
    let Ok((_, metrics)) = get(server.address(), "/metrics").await else { return false };
    metrics.lines().any(|line| line.rsplit_once(' ') == Some((name, value)))
}

async fn await_metric(server: &Server, name: &str, value: &str) {
    eventually(&format!("{name} is {value}"), async || has_metric(server, name, value).await.then_some(()))
        .await
        .unwrap();
}

/// Submits a request in the open transaction, and returns its id.
async fn submit(session: &Session, key: &str) -> Uuid {
    session.get(&format!("SELECT leasehold_submit('q', '{key}', 'secret body')")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_q15_a_server_relays_what_has_committed_through_a_pooler() {
    let database = Database::new().await;
    let bouncer = Bouncer::start(&database.0, 2).unwrap();
    let server = serving(&bouncer.url("postgres")).start().unwrap();
    let (front, late) = (database.connect().await, database.connect().await);
    // Transactions that were rolled back have drawn many numbers, so a batch without a row passes them.
    front.run("SELECT nextval('leasehold_outbox_number') FROM generate_series(1, 10000)").await.unwrap();
    eventually("the numbers are passed", async || {
        let passed = front.get::<i64>("SELECT relayed_number FROM leasehold_outbox_relay").await;
        (passed == 10_000).then_some(())
    })
    .await
    .unwrap();
    late.run("BEGIN").await.unwrap();
    let first = submit(&late, "secret key").await;
    front.run("BEGIN").await.unwrap();
    submit(&front, "secret key").await;
    front.run("ROLLBACK; BEGIN").await.unwrap();
    let second = submit(&front, "secret key").await;
    front.run("COMMIT").await.unwrap();
    let lane = async |count| {
        let found = async || Some(waiting(&server, "secret key").await).filter(|ids| ids.len() == count);
        eventually("the requests are relayed", found).await.unwrap()
    };
    assert_eq!(lane(1).await, [second], "a late transaction holds up no other");
    late.run("COMMIT").await.unwrap();
    assert_eq!(lane(2).await, [second, first]);
    await_metric(&server, "leasehold_relay_rows_total{relay=\"shop\",outcome=\"relayed\"}", "2").await;
    await_metric(&server, "leasehold_relay_state{relay=\"shop\",state=\"relaying\"}", "1").await;
    await_metric(&server, "leasehold_relay_lag_seconds{relay=\"shop\"}", "0").await;
    let banner = format!("\n  relays    shop (postgres://127.0.0.1:{}/postgres)\n", bouncer.port());
    assert!(server.stdout().contains(&banner), "{}", server.stdout());
    let (log, (_, metrics)) = (server.stderr(), get(server.address(), "/metrics").await.unwrap());
    assert!(!log.contains("secret") && !metrics.contains("secret"), "Q22: {log}");
}

/// The acknowledgement of a relay waits for the lock 7 of the user's database.
const BLOCK_ACKNOWLEDGEMENTS: &str = "
    CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END';
    CREATE TRIGGER wait_for_lock BEFORE UPDATE ON leasehold_outbox_relay FOR EACH ROW
        WHEN (NEW.number > OLD.number) EXECUTE FUNCTION wait_for_lock()";

#[tokio::test(flavor = "multi_thread")]
async fn q09_a_server_that_is_killed_before_the_acknowledgement_submits_nothing_twice() {
    let database = Database::new().await;
    let (front, blocker) = (database.connect().await, database.connect().await);
    front.run(BLOCK_ACKNOWLEDGEMENTS).await.unwrap();
    blocker.run("SELECT pg_advisory_lock(7)").await.unwrap();
    let mut server = serving(&database.0.url("postgres")).start().unwrap();
    let ids = [submit(&front, "a").await, submit(&front, "a").await];
    eventually("the server has the requests", async || (waiting(&server, "a").await == ids).then_some(()))
        .await
        .unwrap();
    eventually("the acknowledgement waits", async || {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        (front.get::<i64>(waits).await > 0).then_some(())
    })
    .await
    .unwrap();
    server.kill_9().unwrap();
    blocker.run("SELECT pg_advisory_unlock(7)").await.unwrap();
    server.restart().unwrap();
    let third = submit(&front, "a").await;
    let all = [ids[0], ids[1], third];
    eventually("the next request is relayed", async || (waiting(&server, "a").await.len() >= 3).then_some(()))
        .await
        .unwrap();
    assert_eq!(waiting(&server, "a").await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn q09_q14_q15_a_server_that_is_killed_again_and_again_has_what_committed_each_once() {
    const WRITERS: usize = 4;
    let database = Database::new().await;
    let mut server = serving(&database.0.url("postgres")).start().unwrap();
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (session, stopping) = (database.connect().await, stopping.clone());
        writers.spawn(async move {
            let (key, mut committed) = (format!("writer {writer}"), Vec::new());
            for round in 0.. {
                if *stopping.borrow() {
                    break;
                }
                session.run("BEGIN").await.unwrap();
                let ids = [submit(&session, &key).await, submit(&session, &key).await];
                session.run(if round % 3 == 0 { "ROLLBACK" } else { "COMMIT" }).await.unwrap();
                if round % 3 != 0 {
                    committed.extend(ids);
                }
            }
            (key, committed)
        });
    }
    for _ in 0..8 {
        let relayed = waiting(&server, "writer 0").await.len();
        eventually("more is relayed", async || (waiting(&server, "writer 0").await.len() > relayed).then_some(()))
            .await
            .unwrap();
        server.kill_9().unwrap();
        server.restart().unwrap();
    }
    stop.send_replace(true);
    for (key, committed) in writers.join_all().await {
        assert!(committed.len() > 8, "{key} has committed {}", committed.len());
        eventually("all is relayed", async || (waiting(&server, &key).await.len() >= committed.len()).then_some(()))
            .await
            .unwrap();
        assert!(waiting(&server, &key).await == committed, "{key}: not in the order of the commits, each once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q15_one_of_two_servers_relays_and_the_other_takes_its_place() {
    let database = Database::new().await;
    let front = database.connect().await;
    front.run("CREATE DATABASE claims").await.unwrap();
    let store = database.0.url("claims");
    let config = format!("{}[postgres]\nurl = \"{store}\"\n", relay(&database.0.url("postgres")));
    let start = || Server::builder().config(config.clone()).start().unwrap();
    let is_relaying = async |server: &Server| {
        await_metric(server, "leasehold_relay_state{relay=\"shop\",state=\"relaying\"}", "1").await;
    };
    let mut first = start();
    is_relaying(&first).await;
    let second = start();
    await_metric(&second, "leasehold_relay_state{relay=\"shop\",state=\"waiting\"}", "1").await;
    let one = submit(&front, "a").await;
    eventually("it is relayed", async || (waiting(&second, "a").await == [one]).then_some(())).await.unwrap();
    await_metric(&second, "leasehold_relay_rows_total{relay=\"shop\",outcome=\"relayed\"}", "0").await;
    // A server that stops gives its place up at once, and one that is killed is missed after a while.
    first.terminate().unwrap();
    is_relaying(&second).await;
    let mut second = second;
    let third = start();
    await_metric(&third, "leasehold_relay_state{relay=\"shop\",state=\"waiting\"}", "1").await;
    second.kill_9().unwrap();
    let two = submit(&front, "a").await;
    is_relaying(&third).await;
    eventually("it is relayed", async || (waiting(&third, "a").await == [one, two]).then_some(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_request_that_is_refused_for_good_holds_up_no_other() {
    let database = Database::new().await;
    let server = serving(&database.0.url("postgres")).start().unwrap();
    let front = database.connect().await;
    let used = submit(&front, "a").await;
    eventually("it is relayed", async || (waiting(&server, "a").await == [used]).then_some(())).await.unwrap();
    // The id is used for another request, in the middle of others.
    front.run("BEGIN").await.unwrap();
    let before = submit(&front, "b").await;
    front.run(&format!("SELECT leasehold_submit('q', 'b', 'other body', id => '{used}')")).await.unwrap();
    // A captured change of claims is for the relay of the gem, and no worker would take it.
    front.run("SELECT leasehold_submit('leasehold.claims.strict', 'users')").await.unwrap();
    let after = submit(&front, "b").await;
    front.run("COMMIT").await.unwrap();
    eventually("the others are relayed", async || (waiting(&server, "b").await == [before, after]).then_some(()))
        .await
        .unwrap();
    await_metric(&server, "leasehold_relay_rows_total{relay=\"shop\",outcome=\"refused\"}", "2").await;
    await_metric(&server, "leasehold_relay_refused_requests{relay=\"shop\"}", "2").await;
    let reasons =
        front.get::<String>("SELECT string_agg(reason, ' ' ORDER BY number) FROM leasehold_outbox_refused").await;
    assert_eq!(reasons, "IDEMPOTENCY_KEY_REUSED RULE_DENIED");
    assert!(server.has_logged("rows of the outbox are refused for good"), "{}", server.stderr());
    let config = server.config_path().display().to_string();
    let found = leasehold(["doctor", "--config", &config]).await.unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("warn  relay          `shop`: ") && found.contains("2 refused requests"), "{found}");
}

/// All rows of one read are refused, and are set aside in one acknowledgement.
#[tokio::test(flavor = "multi_thread")]
async fn q14_a_relay_sets_thousands_of_requests_aside_within_its_timeout() {
    const REQUESTS: i64 = 3_000;
    let database = Database::new().await;
    let url = database.0.url("postgres");
    let server = serving(&url).config(format!("{}statement_timeout_seconds = 2\n", relay(&url))).start().unwrap();
    let front = database.connect().await;
    front.run("BEGIN").await.unwrap();
    let many = "SELECT count(leasehold_submit('leasehold.claims', n::text, convert_to(repeat('b', 1000), 'UTF8')))";
    front.run(&format!("{many} FROM generate_series(1, {REQUESTS}) AS n")).await.unwrap();
    let after = submit(&front, "b").await;
    front.run("COMMIT").await.unwrap();
    eventually("the other is relayed", async || (waiting(&server, "b").await == [after]).then_some(())).await.unwrap();
    assert_eq!(front.get::<i64>("SELECT count(*) FROM leasehold_outbox_refused").await, REQUESTS);
    await_metric(&server, "leasehold_relay_refused_requests{relay=\"shop\"}", &REQUESTS.to_string()).await;
}

/// An acknowledged row is gone. So one that this program does not know, and those after it, wait.
#[tokio::test(flavor = "multi_thread")]
async fn q14_a_row_of_an_unknown_operation_is_not_acknowledged() {
    let database = Database::new().await;
    let server = serving(&database.0.url("postgres")).start().unwrap();
    let front = database.connect().await;
    let unknown = "INSERT INTO leasehold_outbox (part, transaction_id, number, operation, queue, key)
        SELECT part, pg_current_xact_id(), nextval('leasehold_outbox_number'), 'unknown', 'q', 'k' FROM leasehold_outbox_part";
    front.run(unknown).await.unwrap();
    eventually("the relay fails", async || server.has_logged("the outbox is newer than this program").then_some(()))
        .await
        .unwrap();
    await_metric(&server, "leasehold_relay_state{relay=\"shop\",state=\"failing\"}", "1").await;
    front
        .run(
            "UPDATE leasehold_outbox SET operation = 'submit', kind = 'update', priority = 0, due_at = now(),
        max_attempts = 1, body = '', request_id = gen_random_uuid() WHERE operation = 'unknown'",
        )
        .await
        .unwrap();
    eventually("it is relayed", async || (waiting(&server, "k").await.len() == 1).then_some(())).await.unwrap();
    let failures = server.stderr().matches("can't be relayed: it is tried again").count();
    assert_eq!(failures, 1, "a failure is logged once: {}", server.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_relay_outlives_its_database_and_follows_a_reload() {
    let mut database = Database::new().await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cells = leasehold_tests::server::DEVELOPMENT_CELLS;
    let server = Server::builder().config("").listen(format!("127.0.0.1:{port}")).start().unwrap();
    let reload = |text: &str| {
        server.write_config(&format!("{text}{cells}")).unwrap();
        server.signal(Signal::SIGHUP).unwrap();
    };
    reload(&relay(&database.0.url("postgres")));
    let relaying = "leasehold_relay_state{relay=\"shop\",state=\"relaying\"}";
    await_metric(&server, relaying, "1").await;
    database.0.crash().unwrap();
    await_metric(&server, "leasehold_relay_state{relay=\"shop\",state=\"failing\"}", "1").await;
    let restarted = tokio::task::spawn_blocking(move || {
        database.0.restart().unwrap();
        database
    });
    let database = restarted.await.unwrap();
    await_metric(&server, relaying, "1").await;
    let front = database.connect().await;
    let id = submit(&front, "a").await;
    eventually("it is relayed", async || (waiting(&server, "a").await == [id]).then_some(())).await.unwrap();
    // Settings that can't be used change nothing.
    reload("[[relays]]\nname = \"shop\"\nurl = \"mysql://secret@db/shop\"\n");
    eventually("the reload is refused", async || server.has_logged("is not PostgreSQL").then_some(())).await.unwrap();
    assert!(has_metric(&server, relaying, "1").await && !server.stderr().contains("secret"), "{}", server.stderr());
    reload("");
    eventually("the relay ends", async || {
        let (_, metrics) = get(server.address(), "/metrics").await.unwrap();
        (!metrics.contains("leasehold_relay_lag_seconds{")).then_some(())
    })
    .await
    .unwrap();
    let holder = front.get::<Option<Uuid>>("SELECT relay FROM leasehold_outbox_holder").await;
    assert_eq!(holder, None, "the relay has given up its place");
}

/// Runs `leasehold queue take` for one batch, whose command is a script of the shell. The session ends soon after its
/// worker.
async fn take(server: &Server, script: &Path, url: &str) -> Output {
    let mut command = leasehold_tests::wire::command().unwrap();
    command.args(["queue", "take", "--server", &format!("http://{}", server.address()), "--once"]);
    command.args(["--duration-seconds", "2", "--grace-seconds", "1", "--max-requests", "100", "q", "--", "sh"]);
    command.arg(script).env("DATABASE", url).output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_worker_that_is_killed_after_its_commit_has_its_work_done_once() {
    let database = Database::new().await;
    let url = database.0.url("postgres");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Server::builder().config("").listen(format!("127.0.0.1:{port}")).start().unwrap();
    let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let requests = ids.map(|id| wire::NewRequest {
        request_id: id.as_bytes().to_vec(),
        key: "7".into(),
        kind: wire::RequestKind::Update.into(),
        max_attempts: 5,
        ..Default::default()
    });
    let submit = wire::SubmitRequest { queue: "q".into(), requests: requests.into() };
    queues(&server).await.submit(submit).await.unwrap();
    let directory = tempfile::TempDir::new().unwrap();
    let script = directory.path().join("work.sh");
    // The work of a batch: each of its requests that is not done counts in a row.
    let work = |end: &str| {
        let text = format!(
            "ids=\"'{{$(echo $LEASEHOLD_REQUESTS | tr ' ' ',')}}'::uuid[]\"\n\
             psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --single-transaction \"$DATABASE\" <<END\n\
             SELECT leasehold_guard('q/7', $LEASEHOLD_FENCE, interval '1 minute');\n\
             UPDATE rows SET version = version + 1 WHERE id = 1\n\
               AND NOT $ids <@ leasehold_done('q', '7', $ids);\n\
             SELECT leasehold_complete('$LEASEHOLD_SESSION', 'q', '7', $LEASEHOLD_FENCE, $ids);\n\
             END\n{end}\n"
        );
        std::fs::write(&script, text).unwrap();
    };
    work("kill -9 $PPID");
    let killed = take(&server, &script, &url).await;
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    let front = database.connect().await;
    let done = "SELECT version FROM rows WHERE id = 1";
    assert_eq!(front.get::<i32>(done).await, 1, "{killed:?}");
    // The next worker gets the batch before any relay runs. It dies too.
    let killed = take(&server, &script, &url).await;
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    assert_eq!(front.get::<i32>(done).await, 1);
    // The relay finds the settles of both refused, and keeps their marks for the third worker.
    server.write_config(&format!("{}{}", relay(&url), leasehold_tests::server::DEVELOPMENT_CELLS)).unwrap();
    eventually("the session of the second worker ends", async || {
        let found = state(&server, ids[0]).await;
        (found == wire::RequestState::New).then_some(())
    })
    .await
    .unwrap();
    server.signal(Signal::SIGHUP).unwrap();
    await_metric(&server, "leasehold_relay_rows_total{relay=\"shop\",outcome=\"refused\"}", "2").await;
    let marks = "SELECT count(*) FROM leasehold_outbox_done";
    assert_eq!(front.get::<i64>(marks).await, 2);
    work("");
    let output = take(&server, &script, &url).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(front.get::<i32>(done).await, 1, "the work was done once");
    for id in ids {
        assert_eq!(state(&server, id).await, wire::RequestState::Complete);
    }
    eventually("the marks are forgotten", async || (front.get::<i64>(marks).await == 0).then_some(())).await.unwrap();
}
