//! The time without an answer in a failover, as a quiet client sees it: one begin after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_tests::client::Client;
use leasehold_tests::server::Server;
use tokio::sync::oneshot;
use xtask::cluster::{Cluster, NODES};

use super::World;
use super::faults::{FAULTS, await_promotion};
use crate::{await_condition, cells, create};

/// The number of times that each fault is played.
const TIMES: usize = 3;
/// Texts that the names of the faults have, and the longest time without an answer in the median.
const LIMITS: [(&str, Duration); 3] = [
    // The leader key lasts for 15 to 20 s more, and for 21 s if the leader of etcd had the same machine. The standby then
    // waits 2 s for an answer of the former primary, and the servers wait 2 s.
    ("the primary loses its power", Duration::from_secs(30)),
    ("the postmaster is killed", Duration::from_secs(10)),
    ("a planned switchover", Duration::from_secs(8)),
];

/// The answers to a client.
#[derive(Default)]
struct Answers {
    fences: Vec<u64>,
    /// The longest time without an answer.
    longest: Duration,
}

/// Begins one update after the other until the sender is dropped, and counts those that are answered. A name whose
/// begin has no answer is begun again.
async fn begin_until(
    mut client: Client,
    first: usize,
    mut over: oneshot::Receiver<()>,
    answered: Arc<AtomicUsize>,
) -> Answers {
    let (mut answers, mut last) = (Answers::default(), Instant::now());
    while over.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
        let name = format!("name-{}", first + answers.fences.len());
        if let Ok(begun) = client.begin(create(name)).await {
            answers.fences.push(begun.fence);
            answers.longest = answers.longest.max(last.elapsed());
            last = Instant::now();
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    answers
}

/// Waits until some more begins are answered.
fn await_more(answered: &AtomicUsize) {
    let enough = answered.load(Ordering::Relaxed) + 50;
    await_condition("begins are answered", || answered.load(Ordering::Relaxed) > enough);
}

#[test]
fn b09_b13_answers_return_soon_after_a_failover() {
    let mut world = World::start([0; NODES as usize]);
    let config = format!("[postgres]\nurl = \"{}\"\npatience_seconds = 60\n{}", world.cluster.url(), cells(1));
    let machine = &world.servers[0];
    let server = Server::builder().config(config).in_namespace(machine.name(), machine.address()).start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut fences = Vec::new();
    let mut medians = BTreeMap::new();
    for (name, limit) in LIMITS {
        let fault = FAULTS.iter().find(|fault| fault.name.contains(name)).unwrap();
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let client = runtime.block_on(Client::connect(&server, 1)).unwrap();
            let (over, is_over) = oneshot::channel();
            let answered = Arc::<AtomicUsize>::default();
            let begins = runtime.spawn(begin_until(client, fences.len(), is_over, answered.clone()));
            await_more(&answered);
            let primary = world.cluster.primary().unwrap();
            (fault.begin)(&mut world, primary).unwrap();
            await_promotion(&world, primary).unwrap();
            await_more(&answered);
            (fault.end)(&mut world, primary).unwrap();
            world.cluster.wait_until("all nodes are back", Cluster::is_whole).unwrap();
            drop(over);
            let answers = runtime.block_on(begins).unwrap();
            println!("{name}: {:.1?}", answers.longest);
            fences.extend(answers.fences);
            times.push(answers.longest);
        }
        times.sort();
        medians.insert(name, (times[TIMES / 2], limit));
    }
    assert!(fences.is_sorted_by(|one, next| one < next), "B13: a fence is no larger than the one before");
    let mut client = runtime.block_on(Client::connect(&server, 1)).unwrap();
    for number in 0..fences.len() {
        runtime.block_on(client.get(&format!("name-{number}"))).unwrap();
    }
    println!("counts: {{\"begins\":{},\"failovers\":{}}}", fences.len(), LIMITS.len() * TIMES);
    println!("{medians:.1?}");
    assert!(medians.values().all(|(median, limit)| median <= limit), "{medians:.1?}");
}
