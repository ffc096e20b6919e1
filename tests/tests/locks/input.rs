//! Refused input: each refusal has its own reason, and nothing changes.

use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::sessions::v1 as sessions;
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tonic::{Response, Status};

use super::{LONG, NOW, get, path, session, stub, take};

fn reason<T: std::fmt::Debug>(result: Result<Response<T>, Status>) -> String {
    Refusal::of(&result.unwrap_err()).reason
}

fn open(id: Vec<u8>, duration_micros: u64, grace_micros: u64) -> sessions::OpenSessionRequest {
    sessions::OpenSessionRequest { session_id: id, duration_micros, grace_micros }
}

#[tokio::test(flavor = "multi_thread")]
async fn k21_sessions_with_terms_outside_of_the_bounds_are_refused_with_the_bound() {
    let server = Server::start().unwrap();
    let mut stub = stub(&server).await;
    let day = 86_400_000_000;
    for (id, duration, grace, expected) in [
        (vec![1; 15], 1_000_000, 1_000_000, "INVALID_UPDATE"),
        (vec![], 1_000_000, 1_000_000, "INVALID_UPDATE"),
        (vec![1; 16], 0, 1_000_000, "INVALID_UPDATE"),
        (vec![1; 16], 1_000_000, 0, "INVALID_UPDATE"),
        (vec![1; 16], 365 * day, 1_000_000, "LIMIT_EXCEEDED"),
        (vec![1; 16], 1_000_000, u64::MAX, "LIMIT_EXCEEDED"),
    ] {
        assert_eq!(reason(stub.open_session(open(id, duration, grace)).await), expected, "{duration} {grace}");
    }
    stub.open_session(open(vec![1; 16], 1_000_000, 1_000_000)).await.unwrap();
    stub.open_session(open(vec![1; 16], 1_000_000, 1_000_000)).await.unwrap();
    assert_eq!(reason(stub.open_session(open(vec![1; 16], 2_000_000, 1_000_000)).await), "SESSION_REUSED");
    let unknown = sessions::RenewSessionRequest { session_id: vec![2; 16] };
    assert_eq!(reason(stub.renew_session(unknown).await), "SESSION_NOT_FOUND");
    let close = sessions::CloseSessionRequest { session_id: vec![1; 16] };
    stub.close_session(close.clone()).await.unwrap();
    stub.close_session(close).await.unwrap();
    let renew = sessions::RenewSessionRequest { session_id: vec![1; 16] };
    assert_eq!(reason(stub.renew_session(renew).await), "SESSION_ENDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn k16_k21_malformed_paths_and_old_fences_are_refused_and_change_nothing() {
    let server = Server::start().unwrap();
    let mut stub = stub(&server).await;
    let holder = session(&server, LONG).await;
    let held = take(&holder, "q", NOW).await.unwrap();
    let before = get(&server, "q").await;
    let id = holder.id().as_bytes().to_vec();
    let ask = |namespace: &str, key: &str| wire::TryAcquireLockRequest {
        session_id: id.clone(),
        ask_id: vec![4; 16],
        lock: Some(wire::LockPath { namespace: namespace.into(), key: key.into(), slot: 0 }),
        ..Default::default()
    };
    let long = "k".repeat(2_048);
    for (namespace, key, expected) in [
        ("", "k", "INVALID_UPDATE"),
        ("a..b", "k", "INVALID_UPDATE"),
        (".a", "k", "INVALID_UPDATE"),
        ("a", "", "INVALID_UPDATE"),
        ("a", "k\n", "INVALID_UPDATE"),
        ("a", &long, "LIMIT_EXCEEDED"),
        (&long, "k", "LIMIT_EXCEEDED"),
        ("user.update", "q", "LOCK_HELD"),
    ] {
        assert_eq!(reason(stub.try_acquire_lock(ask(namespace, key)).await), expected, "{namespace:?} {key:?}");
    }
    let foreign = wire::TryAcquireLockRequest { session_id: vec![9; 16], ..ask("a", "k") };
    assert_eq!(reason(stub.try_acquire_lock(foreign).await), "SESSION_NOT_FOUND");
    let release = |fence, value: usize| wire::ReleaseLockRequest {
        session_id: id.clone(),
        lock: Some(path("q")),
        fence,
        failed: false,
        value: vec![0; value],
    };
    for fence in [0, held.fence() - 1, held.fence() + 1, u64::MAX] {
        assert_eq!(reason(stub.release_lock(release(fence, 0)).await), "FENCE_PASSED", "{fence}");
    }
    assert_eq!(reason(stub.release_lock(release(held.fence(), 2_049)).await), "LIMIT_EXCEEDED");
    let wait = wire::AcquireLockRequest {
        session_id: id.clone(),
        ask_id: vec![5; 16],
        lock: Some(path("q")),
        wait_micros: 86_400_000_001,
        ..Default::default()
    };
    assert_eq!(reason(stub.acquire_lock(wait).await), "LIMIT_EXCEEDED");
    let force = wire::ForceLockRequest { lock: Some(path("q")), fence: held.fence() + 1, at_once: false };
    assert_eq!(reason(stub.force_lock(force).await), "FENCE_PASSED");
    assert_eq!(get(&server, "q").await, before);
    assert!(!server.stderr().contains("kkkk"), "no key is logged (K24)");
}

#[tokio::test(flavor = "multi_thread")]
async fn k16_a_list_has_the_locks_of_a_namespace_and_of_those_in_it_in_pages() {
    let server = Server::start().unwrap();
    let mut stub = stub(&server).await;
    let holder = session(&server, LONG).await;
    for (namespace, key) in [("user", "b"), ("user", "a"), ("user.update", "c"), ("user-2", "d"), ("other", "e")] {
        assert!(holder.lock(namespace, key, NOW).await.unwrap().is_some());
    }
    let held = holder.lock("user.z", "free", NOW).await.unwrap().unwrap();
    holder.release(&held, leasehold_client::WorkOutcome::Succeeded, b"").await.unwrap();
    let mut list = async |namespace: &str, limit, after| {
        let request = wire::ListLocksRequest { namespace: namespace.into(), limit, after };
        let page = stub.list_locks(request).await.unwrap().into_inner();
        let paths = page.locks.into_iter().map(|lock| lock.path.unwrap()).collect::<Vec<_>>();
        (paths, page.truncated)
    };
    let names = |paths: &[wire::LockPath]| {
        paths.iter().map(|path| format!("{}/{}", path.namespace, path.key)).collect::<Vec<_>>()
    };
    let (first, more) = list("user", 2, None).await;
    assert_eq!((names(&first), more), (vec!["user/a".to_owned(), "user/b".to_owned()], true));
    let (rest, more) = list("user", 2, first.last().cloned()).await;
    assert_eq!((names(&rest), more), (vec!["user.update/c".to_owned()], false));
    let (all, more) = list("", 0, None).await;
    assert_eq!((all.len(), more), (5, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn k21_sessions_beyond_the_limits_are_refused_by_name() {
    let config = "[limits]\nsessions = 3\nsessions_per_service = 2\n";
    let server = Server::builder().config(config).start().unwrap();
    let mut stub = stub(&server).await;
    stub.open_session(open(vec![1; 16], 60_000_000, 1_000_000)).await.unwrap();
    stub.open_session(open(vec![2; 16], 60_000_000, 1_000_000)).await.unwrap();
    let refused = stub.open_session(open(vec![3; 16], 60_000_000, 1_000_000)).await.unwrap_err();
    assert!(refused.message().contains("limits.sessions_per_service"), "{refused}");
    // A repeated open is no further session.
    stub.open_session(open(vec![1; 16], 60_000_000, 1_000_000)).await.unwrap();
    stub.close_session(sessions::CloseSessionRequest { session_id: vec![2; 16] }).await.unwrap();
    stub.open_session(open(vec![3; 16], 60_000_000, 1_000_000)).await.unwrap();
}
