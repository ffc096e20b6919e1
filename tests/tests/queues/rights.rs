//! The rights of services: queues by the configured namespaces, and operators' calls by their role.

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::queue_service_client::QueueServiceClient;
use leasehold_proto::leasehold::sessions::v1::session_service_client::SessionServiceClient;
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::server::Server;
use tempfile::TempDir;

use super::{Client, QUEUE, id, reason, update};

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
        let access = |caller: &str, namespace: &str| {
            format!("[[locks.access]]\ncaller = {caller:?}\nnamespaces = [{namespace:?}]\n")
        };
        let config = format!(
            "{}{}[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {clients:?}\n",
            access("service/sheets", "sheets"),
            access("service/mails", "mails")
        );
        Self { server: Server::builder().config(config).start().unwrap(), authority, _files: files }
    }

    async fn caller(&self, role: &str) -> Client {
        let pair = self.authority.client(&[&format!("spiffe://leasehold/{role}")]).unwrap();
        let channel = self.server.connect(Some(self.authority.client_config(Some(&pair)))).await.unwrap();
        Client { queues: QueueServiceClient::new(channel.clone()), sessions: SessionServiceClient::new(channel) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_uses_the_queues_of_its_namespaces_and_an_administrator_operates_them() {
    let world = World::new();
    let (sheets, mails) = (world.caller("service/sheets").await, world.caller("service/mails").await);
    let admin = world.caller("admin").await;
    let (worker, foreign) = (sheets.worker(1).await, mails.worker(2).await);
    sheets.submit(vec![update(1, "7")]).await;
    let submit = wire::SubmitRequest { queue: QUEUE.into(), requests: vec![update(2, "7")] };
    for client in [&mails, &admin] {
        assert_eq!(reason(client.queues.clone().submit(submit.clone()).await), "RULE_DENIED");
    }
    let take = |session_id: &[u8], queue: &str| wire::TakeNowRequest {
        session_id: session_id.to_vec(),
        queue: queue.into(),
        take_id: id(1),
        max_requests: 0,
    };
    assert_eq!(reason(mails.queues.clone().take_now(take(&foreign, QUEUE)).await), "RULE_DENIED");
    let stream = wire::TakeRequest {
        session_id: foreign,
        queue: QUEUE.into(),
        credit: 1,
        held_fences: Vec::new(),
        max_requests: 0,
    };
    assert_eq!(reason(mails.queues.clone().take(stream).await), "RULE_DENIED");
    sheets.submit(vec![update(3, "8")]).await;
    // Another service's session is none of the caller's.
    assert_eq!(reason(mails.queues.clone().take_now(take(&worker, "mails")).await), "SESSION_ENDED");
    let get = wire::GetRequestRequest { request_id: id(1), with_body: true };
    assert_eq!(reason(mails.queues.clone().get_request(get.clone()).await), "RULE_DENIED");
    assert!(admin.queues.clone().get_request(get).await.unwrap().into_inner().request.is_some());
    let settled = wire::ListRequestsRequest { list: 3, ..Default::default() };
    assert_eq!(reason(sheets.queues.clone().list_requests(settled.clone()).await), "INVALID_UPDATE");
    admin.queues.clone().list_requests(settled).await.unwrap();
    let pause = wire::PauseRequest { queue: QUEUE.into(), ..Default::default() };
    assert_eq!(reason(sheets.queues.clone().pause(pause.clone()).await), "RULE_DENIED");
    admin.queues.clone().pause(pause).await.unwrap();
    assert_eq!(sheets.take(&worker, 2).await, None);
}
