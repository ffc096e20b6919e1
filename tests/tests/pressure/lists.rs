//! Tests of lists: a list delays no other call, stops when its caller is gone, and reads no more
//! bytes than it returns.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_client::{Refusal, Stub};
use leasehold_core::lease::Outcome;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, GetRecordRequest, ListRecordsRequest, ListRecordsResponse,
};
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::lists::{abandon_lists, futile_list};
use leasehold_tests::server::Server;
use leasehold_tests::wire::creates;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::{growth, memory, thread_count};

const USERS: i32 = 1;
const MIB: u64 = 1024 * 1024;
/// The number of claims in a table that takes a while to scan, also in a release build.
const MANY: u64 = 60_000;
const LISTS: usize = 5;

/// Claims `count` usernames, each of a row of its own, with `data` bytes of attached data.
pub(crate) async fn claim_users(server: &Server, rows: std::ops::Range<u64>, data: usize) {
    claim_users_over(&mut Client::connect(server, 1).await.unwrap(), rows, data).await;
}

/// Does what [`claim_users`] does, over the connection of a client.
pub(crate) async fn claim_users_over(client: &mut Client, rows: std::ops::Range<u64>, data: usize) {
    let rows: Vec<_> = rows.collect();
    for rows in rows.chunks((8_000_000 / (data + 100)).clamp(1, 2000)) {
        let creates = rows.iter().map(|row| user(format!("user-{row}"), *row, vec![7; data])).collect();
        save(client, Update { creates, ..Update::default() }).await;
    }
}

async fn save(client: &mut Client, update: Update) {
    let begun = client.begin(update).await.unwrap();
    client.settle(&begun.lease, Outcome::Committed).await.unwrap();
}

pub(crate) fn full_list() -> ListRecordsRequest {
    ListRecordsRequest { cell_id: 1, source_type: USERS, ..ListRecordsRequest::default() }
}

fn stub(channel: &Channel) -> Stub<Channel> {
    Stub::new(channel.clone()).with_max_answer_bytes(usize::MAX)
}

/// Lists the pages of the table of users, each after the last source id of the page before. The
/// client has gRPC's default limit on the size of an answer.
pub(crate) async fn pages(channel: &Channel) -> Result<Vec<ListRecordsResponse>, Status> {
    let mut pages: Vec<ListRecordsResponse> = Vec::new();
    let mut request = full_list();
    loop {
        let page = stub(channel).list_records(request.clone()).await?.into_inner();
        let last = page.records.last().and_then(|record| record.metadata.as_ref()?.source.clone());
        let is_truncated = page.truncated;
        pages.push(page);
        if !is_truncated {
            return Ok(pages);
        }
        request.source_id_gt = last.unwrap().rails_primary_key_id;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn saves_and_reads_go_on_while_a_list_scans() {
    let server = Server::start().unwrap();
    claim_users(&server, 1..MANY + 1, 0).await;
    let channel = server.connect(None).await.unwrap();
    let (lists, mut client) = (AtomicUsize::new(0), Client::connect(&server, 2).await.unwrap());
    let listing = async {
        for _ in 0..LISTS {
            let page = stub(&channel).list_records(futile_list()).await.unwrap().into_inner();
            assert!(page.records.is_empty() && !page.truncated);
            lists.fetch_add(1, Ordering::Relaxed);
        }
    };
    // The number of begins that were answered during each list.
    let saving = async {
        let mut begins = [0; LISTS];
        let mut claims = server.claims(None).await.unwrap();
        for number in 1_u64.. {
            let creates = vec![user(format!("other-{number}"), number, Vec::new())];
            client.begin(Update { creates, ..Update::default() }).await.unwrap();
            let bucket = user("user-7", 7, Vec::new()).bucket;
            claims.get_record(GetRecordRequest { bucket, claim: None }).await.unwrap();
            let Some(during) = begins.get_mut(lists.load(Ordering::Relaxed)) else { break };
            *during += 1;
        }
        begins
    };
    let ((), begins) = tokio::join!(listing, saving);
    // The first list may have begun after the first begins. If a list blocked writers, it would let
    // one or two begins pass, which were under way when the list took its lock. The mean is
    // checked, because the machine may delay a single list or begin.
    let all: usize = begins[1..].iter().sum();
    assert!(all >= 5 * (LISTS - 1), "{begins:?} begins were answered during the lists");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_whose_callers_are_gone_stop_and_leave_their_places_to_others() {
    let server = Server::builder().config("[limits]\nconcurrent_lists = 4\n").start().unwrap();
    claim_users(&server, 1..MANY + 1, 0).await;
    let before = thread_count(&server);
    abandon_lists(&server).await.unwrap();
    let grown = thread_count(&server) - before;
    assert!(grown <= 8, "{grown} threads scan for 4 places");
    let mut claims = server.claims(None).await.unwrap();
    let mut request = Request::new(full_list());
    request.set_timeout(Duration::from_secs(5));
    assert_eq!(claims.list_records(request).await.unwrap().into_inner().records.len(), 1000);
    claims.begin_update(creates(2, &["other"])).await.unwrap();
}

/// Lists the claims of cell 1 again and again, until a list is refused. Returns the refusal.
async fn list_until_refused(channel: Channel) -> Refusal {
    loop {
        if let Err(status) = stub(&channel).list_records(futile_list()).await {
            return Refusal::of(&status);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cells_lists_leave_other_cells_their_share() {
    let server = Server::builder().config("[limits]\nconcurrent_lists = 4\nqueued_lists = 64\n").start().unwrap();
    claim_users(&server, 1..MANY + 1, 0).await;
    let channel = server.connect(None).await.unwrap();
    let mut flood = JoinSet::new();
    for _ in 0..100 {
        flood.spawn(list_until_refused(channel.clone()));
    }
    // From the first refusal on, the lists that are left take all places that cell 1 may have.
    let refusal = flood.join_next().await.unwrap().unwrap();
    assert_eq!(refusal.code_and_reason(), (Code::ResourceExhausted, "OVERLOADED"));
    let mut claims = server.claims(None).await.unwrap();
    for _ in 0..5 {
        let mut request = Request::new(ListRecordsRequest { cell_id: 2, ..full_list() });
        request.set_timeout(Duration::from_secs(5));
        assert!(claims.list_records(request).await.unwrap().into_inner().records.is_empty());
    }
    assert!(refusal.message.starts_with("the caller has used up its share of `limits.queued_lists` = 64"));
    assert!(flood.len() > 30, "{} lists are left", flood.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_a_list_reads_no_more_bytes_than_a_page_has() {
    let server = Server::builder().config("[limits]\nuser_data_bytes = 1_048_576\n").start().unwrap();
    claim_users(&server, 1..101, 1_000_000).await;
    let channel = server.connect(None).await.unwrap();
    let before = memory(&server, "VmHWM");
    let found = pages(&channel).await.unwrap();
    let grown = growth(&server, before);
    assert_eq!(found.iter().map(|page| page.records.len()).sum::<usize>(), 100);
    assert!(found.iter().all(|page| page.records.len() <= 2), "a page has more than 2 MiB");
    assert!(grown < 32 * MIB, "{} MiB for pages of 2 MiB", grown / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_the_records_of_one_source_id_are_on_one_page_up_to_16_mib() {
    let server = Server::start().unwrap();
    claim_users(&server, 8..10, 0).await;
    let channel = server.connect(None).await.unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let mut claim = async |names: std::ops::Range<u64>| {
        for name in names {
            let creates = (0..1000).map(|n| user(format!("name-{name}-{n}"), 7, vec![7; 3000])).collect();
            save(&mut client, Update { creates, ..Update::default() }).await;
        }
    };
    claim(0..3).await;
    let found = pages(&channel).await.unwrap();
    assert_eq!(found.iter().map(|page| page.records.len()).collect::<Vec<_>>(), [3000, 2]);
    claim(3..6).await;
    let refusal = Refusal::of(&pages(&channel).await.err().unwrap());
    assert_eq!(refusal.code_and_reason(), (Code::ResourceExhausted, "LIMIT_EXCEEDED"));
    assert!(refusal.message.contains("`RAILS_TABLE_USERS`"), "{}", refusal.message);
    assert_eq!(refusal.figure("max"), Some("16777216"));
    // The other rows of the table are listed, and saves go on.
    let mut request = full_list();
    request.source_id_gt = 7_u64.to_be_bytes().to_vec();
    assert_eq!(stub(&channel).list_records(request).await.unwrap().into_inner().records.len(), 2);
    let give_up = (0..1000).map(|n| user(format!("name-0-{n}"), 7, Vec::new())).collect();
    save(&mut client, Update { destroys: give_up, ..Update::default() }).await;
    let found = pages(&channel).await.unwrap();
    assert_eq!(found.iter().map(|page| page.records.len()).collect::<Vec<_>>(), [5000, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_attached_data_has_4_kib_unless_a_setting_allows_more() {
    let begin = |name: &str, bytes: usize| BeginUpdateRequest {
        create_records: vec![user(name, 7, vec![7; bytes])],
        cell_id: 1,
        ..BeginUpdateRequest::default()
    };
    let server = Server::start().unwrap();
    let mut claims = server.claims(None).await.unwrap();
    let refusal = Refusal::of(&claims.begin_update(begin("large", 4097)).await.unwrap_err());
    assert_eq!(refusal.code_and_reason(), (Code::InvalidArgument, "LIMIT_EXCEEDED"));
    assert_eq!((refusal.figure("limit"), refusal.figure("max")), (Some("user_data_bytes"), Some("4096")));
    claims.begin_update(begin("small", 4000)).await.unwrap();
    let server = Server::builder().config("[limits]\nuser_data_bytes = 10_000\n").start().unwrap();
    let mut claims = server.claims(None).await.unwrap();
    claims.begin_update(begin("large", 9000)).await.unwrap();
}
