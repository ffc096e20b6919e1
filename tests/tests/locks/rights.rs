//! The rights of services: sessions of their own, and namespaces by the configuration.

use leasehold_client::Stub;
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::sessions::v1 as sessions;
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{Refusal, eventually};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Response, Status};

struct World {
    authority: Authority,
    server: Server,
    _files: TempDir,
}

impl World {
    fn new() -> Self {
        let (files, authority) = (TempDir::new().unwrap(), Authority::new("services").unwrap());
        let Pair { certificate, key, .. } = authority.server().unwrap();
        let path = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = (path("server.pem", &certificate), path("server.key", &key));
        let clients = path("clients.pem", &authority.pem());
        let config = format!(
            "[[locks.access]]\ncaller = \"service/billing\"\nnamespaces = [\"user\", \"bill\"]\n\
             [[locks.access]]\ncaller = \"cell/7\"\nnamespaces = [\"cell\"]\n\
             [tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {clients:?}\n"
        );
        Self { server: Server::builder().config(config).start().unwrap(), authority, _files: files }
    }

    async fn caller(&self, role: &str) -> Stub<Channel> {
        let pair = self.authority.client(&[&format!("spiffe://leasehold/{role}")]).unwrap();
        let tls = self.authority.client_config(Some(&pair));
        Stub::new(self.server.connect(Some(tls)).await.unwrap())
    }
}

fn refused<T: std::fmt::Debug>(result: Result<Response<T>, Status>) -> String {
    Refusal::of(&result.unwrap_err()).reason
}

fn acquire(session: u8, ask: u8, namespace: &str) -> wire::TryAcquireLockRequest {
    let lock = Some(wire::LockPath { namespace: namespace.into(), key: "secret-key".into(), slot: 0 });
    wire::TryAcquireLockRequest { session_id: vec![session; 16], ask_id: vec![ask; 16], lock, ..Default::default() }
}

fn open(id: u8) -> sessions::OpenSessionRequest {
    sessions::OpenSessionRequest { session_id: vec![id; 16], duration_micros: 60_000_000, grace_micros: 1_000_000 }
}

#[tokio::test(flavor = "multi_thread")]
async fn k16_a_caller_uses_its_own_sessions_and_the_namespaces_that_are_configured_for_it() {
    let world = World::new();
    let (mut billing, mut cell) = (world.caller("service/billing").await, world.caller("cell/7").await);
    let (mut stranger, mut admin) = (world.caller("service/other").await, world.caller("admin").await);
    billing.open_session(open(1)).await.unwrap();
    cell.open_session(open(2)).await.unwrap();
    assert_eq!(refused(stranger.open_session(open(3)).await), "RULE_DENIED");
    assert_eq!(refused(admin.open_session(open(3)).await), "RULE_DENIED");
    let fence = billing.try_acquire_lock(acquire(1, 1, "user.update")).await.unwrap().into_inner().fence;
    cell.try_acquire_lock(acquire(2, 2, "cell.7")).await.unwrap();
    for namespace in ["users", "cell", "b"] {
        assert_eq!(refused(billing.try_acquire_lock(acquire(1, 3, namespace)).await), "RULE_DENIED", "{namespace}");
    }
    assert_eq!(refused(cell.try_acquire_lock(acquire(1, 3, "cell")).await), "SESSION_NOT_OWNED");
    let renew = sessions::RenewSessionRequest { session_id: vec![1; 16] };
    assert_eq!(refused(cell.renew_session(renew).await), "SESSION_NOT_OWNED");
    let watch = sessions::WatchSessionRequest { session_id: vec![1; 16] };
    assert_eq!(refused(cell.watch_session(watch).await), "SESSION_NOT_OWNED");
    let lock = acquire(1, 1, "user.update").lock;
    assert_eq!(refused(cell.get_lock(wire::GetLockRequest { lock: lock.clone() }).await), "RULE_DENIED");
    let list = |namespace: &str| wire::ListLocksRequest { namespace: namespace.into(), ..Default::default() };
    assert_eq!(refused(cell.list_locks(list("user")).await), "RULE_DENIED");
    assert_eq!(refused(cell.list_locks(list("")).await), "INVALID_UPDATE");
    assert_eq!(admin.list_locks(list("")).await.unwrap().into_inner().locks.len(), 2);
    let force = wire::ForceLockRequest { lock, fence, at_once: true };
    assert_eq!(refused(billing.force_lock(force.clone()).await), "RULE_DENIED");
    admin.force_lock(force).await.unwrap();
    eventually("forcing is audited without the key", async || {
        let log = world.server.stderr();
        let line = log.lines().find(|line| line.contains("lock forced"))?.to_owned();
        assert!(
            line.contains("caller=admin") && line.contains("at_once=true") && line.contains("user.update"),
            "{line}"
        );
        assert!(!log.contains("secret-key"));
        Some(())
    })
    .await
    .unwrap();
}
