//! Tests of client certificates and access rules: every rpc is called by every role over TLS. The
//! last tests replace the server's certificates before its start and while it runs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Output;

use leasehold_proto::gitlab::cells::topology_service::AuthorizationRule as Rule;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::false_clock::FalseClock;
use leasehold_tests::server::{DEVELOPMENT_CELLS, Server};
use leasehold_tests::wire::{Refusal, Rpc, call_raw, eventually, get, http, leasehold, rpcs};
use nix::sys::signal::Signal;
use prost::Message;
use prost_reflect::{DynamicMessage, Value};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio_rustls::client::TlsStream;
use tonic::Code;
use tonic::transport::Channel;

const CLASSIFY: &str = "/gitlab.cells.topology_service.ClassifyService/Classify";
const GET_CELLS: &str = "/gitlab.cells.topology_service.claims.v1.ClaimService/GetCells";

/// The role that the server derives from a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Cell(i64),
    Router,
    Admin,
    Service,
    Server,
    Nobody,
}

/// The names in a client certificate (URIs), and the role that each list of names must give the
/// client.
const CLIENTS: [(&[&str], Role); 19] = [
    (&["spiffe://leasehold/cell/1"], Role::Cell(1)),
    (&["spiffe://leasehold/cell/2"], Role::Cell(2)),
    (&["spiffe://leasehold/router"], Role::Router),
    (&["spiffe://leasehold/admin"], Role::Admin),
    (&["https://example.com", "spiffe://leasehold/admin"], Role::Admin),
    (&["spiffe://leasehold/service/billing"], Role::Service),
    (&["spiffe://leasehold/server"], Role::Server),
    (&["spiffe://leasehold/service/billing/more"], Role::Nobody),
    (&["spiffe://leasehold/server", "spiffe://leasehold/admin"], Role::Nobody),
    (&["spiffe://leasehold/service/billing", "spiffe://leasehold/cell/1"], Role::Nobody),
    (&[], Role::Nobody),
    (&["spiffe://elsewhere/admin"], Role::Nobody),
    (&["spiffe://leasehold.elsewhere/admin"], Role::Nobody),
    (&["https://leasehold/admin"], Role::Nobody),
    (&["spiffe://leasehold/cell/1", "spiffe://leasehold/cell/2"], Role::Nobody),
    (&["spiffe://leasehold/router", "spiffe://leasehold/admin"], Role::Nobody),
    (&["spiffe://leasehold/cell/01"], Role::Nobody),
    (&["spiffe://leasehold/cell/9223372036854775808"], Role::Nobody),
    (&["spiffe://leasehold/admin/"], Role::Nobody),
];

/// The files of a server's TLS configuration, and the authority that signed its certificate.
struct Files {
    directory: TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self { directory: TempDir::new().unwrap(), authority: Authority::new("first").unwrap() };
        files.write(&files.authority.server().unwrap(), &files.authority);
        files
    }

    fn write(&self, server: &Pair, clients: &Authority) {
        std::fs::write(self.path("server.pem"), &server.certificate).unwrap();
        std::fs::write(self.path("server.key"), &server.key).unwrap();
        std::fs::write(self.path("clients.pem"), clients.pem()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn config(&self) -> String {
        let access = ["cell/1", "cell/2", "service/billing"]
            .map(|caller| format!("[[locks.access]]\ncaller = \"{caller}\"\nnamespaces = [\"user\"]\n"))
            .concat();
        format!(
            "{access}[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\nreload_interval_seconds = 1\n",
            self.path("server.pem"),
            self.path("server.key"),
            self.path("clients.pem"),
        )
    }

    fn start(&self) -> Server {
        Server::builder().config(self.config()).start().unwrap()
    }
}

/// A handshake has no room for the names of all these authorities. A running server that reads them
/// keeps those that it has.
#[tokio::test(flavor = "multi_thread")]
async fn authorities_with_too_many_names_are_refused() {
    let files = Files::new();
    let many = (0..120).map(|number| Authority::new(&format!("{number:0600}")).unwrap().pem()).collect::<String>();
    let server = files.start();
    std::fs::write(files.path("clients.pem"), &many).unwrap();
    eventually("the files are read", async || server.has_logged("a handshake has room for 65,535").then_some(()))
        .await
        .unwrap();
    let client = files.authority.client(&["spiffe://leasehold/cell/1"]).unwrap();
    server.connect(Some(files.authority.client_config(Some(&client)))).await.unwrap();
    let error = format!("{:#}", Server::builder().config(files.config()).start().unwrap_err());
    assert!(error.contains("exit status: 2") && error.contains("a handshake has room for 65,535"), "{error}");
}

/// Returns the refusal that the rules of an rpc require for a caller; `None` if the call is
/// allowed. Computed without the server's code.
fn verdict(rules: &[Rule], role: Role, cell: Option<i64>) -> Option<(Code, &'static str)> {
    let lets_in = |rule: &Rule| match rule {
        Rule::RuleAllowAnyAuthenticated => role != Role::Server,
        Rule::RuleAllowAnyCell => matches!(role, Role::Cell(_)),
        Rule::RuleAllowMatchingCellOnly => cell.is_some_and(|cell| role == Role::Cell(cell)),
        Rule::RuleAllowAnyRouter => role == Role::Router,
        Rule::RuleAllowAnyAdmin => role == Role::Admin,
        Rule::RuleAllowAnyService => matches!(role, Role::Cell(_) | Role::Service),
        Rule::RuleAllowAnyServer => role == Role::Server,
        Rule::RuleUnspecified => false,
    };
    match role {
        Role::Nobody => Some((Code::Unauthenticated, "NO_IDENTITY")),
        _ if rules.iter().any(lets_in) => None,
        _ => Some((Code::PermissionDenied, "RULE_DENIED")),
    }
}

/// Returns an encoded request of the rpc, empty but for the cell id, and the cell id if the request
/// has that field.
fn request(rpc: &Rpc, cell: i64) -> (Vec<u8>, Option<i64>) {
    let mut message = DynamicMessage::new(rpc.input.clone());
    let field = rpc.input.get_field_by_name("cell_id");
    if let Some(field) = &field {
        message.set_field(field, Value::I64(cell));
    }
    (message.encode_to_vec(), field.map(|_| cell))
}

async fn check_every_rpc(channel: &Channel, client: &str, role: Role) -> usize {
    let mut denied = 0;
    for rpc in rpcs().unwrap() {
        for cell in [1, 2] {
            let (message, asked) = request(&rpc, cell);
            let answer = call_raw(channel, &rpc.path, message).await.map(|_| ());
            let what = format!("{client} calls {} for {asked:?}", rpc.path);
            match (verdict(&rpc.rules, role, asked), answer) {
                (Some(expected), Err(status)) => {
                    assert_eq!(Refusal::of(&status).code_and_reason(), expected, "{what}");
                    denied += 1;
                }
                (Some(expected), Ok(())) => panic!("{what}: let in, not {expected:?}"),
                (None, Ok(())) => {}
                // The access rules let the call in. The handler refuses it, because required fields
                // are missing.
                (None, Err(status)) => {
                    let refusal = Refusal::of(&status);
                    assert_eq!(
                        refusal.code_and_reason(),
                        (Code::InvalidArgument, "INVALID_UPDATE"),
                        "{what}: {status:?}"
                    );
                }
            }
        }
    }
    denied
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rpc_allows_exactly_the_roles_of_its_rules() {
    let files = Files::new();
    let server = files.start();
    let mut denied = 0;
    for (uris, role) in CLIENTS {
        let pair = files.authority.client(uris).unwrap();
        let channel = server.connect(Some(files.authority.client_config(Some(&pair)))).await.unwrap();
        denied += check_every_rpc(&channel, &format!("{uris:?}"), role).await;
    }
    let channel = server.connect(Some(files.authority.client_config(None))).await.unwrap();
    denied += check_every_rpc(&channel, "no certificate", Role::Nobody).await;
    // Each client makes two calls of each rpc. All of them are denied for a client without a role, and
    // none for an admin.
    let rpcs = rpcs().unwrap();
    assert!(denied > 20 * rpcs.len() && rpcs.iter().all(|rpc| !rpc.rules.is_empty()), "{denied} denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_a_cell_acts_for_itself_alone_and_an_administrator_for_any_cell() {
    let files = Files::new();
    let server = files.start();
    let pair = files.authority.client(&["spiffe://leasehold/cell/1"]).unwrap();
    let config = || Some(files.authority.client_config(Some(&pair)));
    let mut claims = server.claims(config()).await.unwrap();
    let begun = claims.begin_update(leasehold_tests::wire::creates(1, &["own"])).await.unwrap().into_inner();
    let other = claims.begin_update(leasehold_tests::wire::creates(2, &["other"])).await.unwrap_err();
    assert_eq!(Refusal::of(&other).code_and_reason(), (Code::PermissionDenied, "RULE_DENIED"));
    // The answer must be the same as for another cell, so that a cell cannot find out which cells
    // exist.
    let unknown = claims.begin_update(leasehold_tests::wire::creates(77, &["other"])).await.unwrap_err();
    assert_eq!(Refusal::of(&unknown).code_and_reason(), (Code::PermissionDenied, "RULE_DENIED"));
    let admin = files.authority.client(&["spiffe://leasehold/admin"]).unwrap();
    let mut admin = server.claims(Some(files.authority.client_config(Some(&admin)))).await.unwrap();
    let settle = leasehold_proto::gitlab::cells::topology_service::claims::v1::RollbackUpdateRequest {
        cell_id: 1,
        lease_uuid: begun.lease_uuid.clone(),
    };
    admin.rollback_update(settle).await.unwrap();
    let uuid = begun.lease_uuid.unwrap().value;
    eventually("the audit names both callers", async || {
        let log = server.stderr();
        let line = |what: &str, caller: &str| {
            log.lines().any(|line| line.contains(what) && line.contains(caller) && line.contains(&uuid))
        };
        (line("lease begun", "cell/1") && line("lease settled", "admin")).then_some(())
    })
    .await
    .unwrap();
}

/// Returns the text of the TLS alert that ends the connection after the handshake; `no alert` if
/// none ends it.
async fn alert(mut stream: TlsStream<tokio::net::TcpStream>) -> String {
    let mut byte = [0];
    match stream.read(&mut byte).await {
        Ok(_) => "no alert".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_or_expired_client_certificate_fails_the_handshake() {
    let files = Files::new();
    let server = files.start();
    let foreign = Authority::new("foreign").unwrap().client(&["spiffe://leasehold/admin"]).unwrap();
    let expired = files.authority.expired(&["spiffe://leasehold/admin"]).unwrap();
    for (pair, expected) in [(foreign, "UnknownCA"), (expired, "CertificateExpired")] {
        let stream = files.authority.connect(server.address(), Some(&pair), "h2").await.unwrap();
        let alert = alert(stream).await;
        assert!(alert.contains(expected), "{expected}: {alert}");
        let config = files.authority.client_config(Some(&pair));
        let called = match server.connect(Some(config)).await {
            Ok(channel) => call_raw(&channel, GET_CELLS, vec![]).await.map_err(|status| status.to_string()),
            Err(error) => Err(error.to_string()),
        };
        assert!(called.is_err(), "{expected}");
    }
    eventually("the failed handshakes are in the log", async || {
        server.stderr().contains("failed the TLS handshake").then_some(())
    })
    .await
    .unwrap();
    let pair = files.authority.client(&["spiffe://leasehold/admin"]).unwrap();
    let channel = server.connect(Some(files.authority.client_config(Some(&pair)))).await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_clients_are_refused_under_tls() {
    let files = Files::new();
    let server = files.start();
    assert!(
        server.connect(None).await.is_err() || {
            let channel = server.connect(None).await.unwrap();
            call_raw(&channel, GET_CELLS, vec![]).await.is_err()
        }
    );
    let plain = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let answer = http(plain, "POST /v1/classify HTTP/1.1", b"{\"type\": \"FIRST_CELL\"}").await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn classify_over_http_has_the_access_rules_of_the_rpc() {
    let files = Files::new();
    let server = files.start();
    let classify = rpcs().unwrap().into_iter().find(|rpc| rpc.path == CLASSIFY).unwrap();
    let pairs = CLIENTS.map(|(uris, role)| (Some(files.authority.client(uris).unwrap()), role));
    for (pair, role) in pairs.into_iter().chain([(None, Role::Nobody)]) {
        let stream = files.authority.connect(server.address(), pair.as_ref(), "http/1.1").await.unwrap();
        let head = "POST /v1/classify HTTP/1.1\r\ncontent-type: application/json";
        let (code, body) = http(stream, head, b"{\"type\": \"FIRST_CELL\"}").await.unwrap();
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        match verdict(&classify.rules, role, None) {
            None => {
                assert_eq!((code, &answer["action"]), (200, &"PROXY".into()), "{role:?}: {body}");
                assert_eq!(answer["proxy"]["address"], "127.0.0.1:3001");
            }
            Some((Code::Unauthenticated, reason)) => assert_eq!((code, &answer["reason"]), (401, &reason.into())),
            Some((_, reason)) => assert_eq!((code, &answer["reason"]), (403, &reason.into())),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_tls_the_metrics_are_not_on_the_call_address() {
    let files = Files::new();
    let server = files.start();
    let stream = files.authority.connect(server.address(), None, "http/1.1").await.unwrap();
    assert_eq!(http(stream, "GET /metrics HTTP/1.1", b"").await.unwrap().0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trust_domain_is_configurable() {
    let files = Files::new();
    let server =
        Server::builder().config(format!("{}trust_domain = \"example.org\"\n", files.config())).start().unwrap();
    for (uri, role) in [("spiffe://example.org/admin", Role::Admin), ("spiffe://leasehold/admin", Role::Nobody)] {
        let pair = files.authority.client(&[uri]).unwrap();
        let channel = server.connect(Some(files.authority.client_config(Some(&pair)))).await.unwrap();
        check_every_rpc(&channel, uri, role).await;
    }
}

async fn serve(config: &Path, data: &Path) -> Output {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--config"].map(Into::into);
    let paths = [config.as_os_str().to_owned(), "--data".into(), data.as_os_str().to_owned()];
    leasehold(arguments.into_iter().chain(paths)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_certificate_files_stop_the_start() {
    let other = Authority::new("other").unwrap().server().unwrap();
    let data = TempDir::new().unwrap();
    for name in ["server.pem", "server.key", "clients.pem"] {
        for (what, spoil) in [
            ("missing", (&|path: &Path| std::fs::remove_file(path).unwrap()) as &dyn Fn(&Path)),
            ("empty", &|path| std::fs::write(path, "").unwrap()),
            ("noise", &|path| std::fs::write(path, [0xff; 100]).unwrap()),
            ("a folder", &|path| {
                std::fs::remove_file(path).unwrap();
                std::fs::create_dir(path).unwrap();
            }),
            ("no DER inside", &|path| {
                let label = if path.ends_with("server.key") { "PRIVATE KEY" } else { "CERTIFICATE" };
                std::fs::write(path, format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n")).unwrap();
            }),
        ] {
            let files = Files::new();
            spoil(&files.path(name));
            refuses_to_start(&files, data.path(), &format!("{name}: {what}"), name).await;
        }
    }
    let files = Files::new();
    std::fs::write(files.path("server.key"), other.key).unwrap();
    refuses_to_start(&files, data.path(), "another certificate's key", "server.pem").await;
}

async fn refuses_to_start(files: &Files, data: &Path, what: &str, named: &str) {
    std::fs::write(files.path("config.toml"), files.config() + DEVELOPMENT_CELLS).unwrap();
    let output = serve(&files.path("config.toml"), data).await;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{what}: {stderr}");
    assert_eq!(stdout, "", "{what}");
    let named = files.path(named).display().to_string();
    assert!(stderr.starts_with("error: ") && stderr.contains(&named), "{what}: {stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{what}: {stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_beyond_loopback_requires_a_flag() {
    let data = TempDir::new().unwrap();
    let data = data.path().to_str().unwrap();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let output = leasehold(["serve", "--listen", address, "--data", data]).await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(output.stdout.is_empty());
        assert!(stderr.contains(address) && stderr.contains("--insecure-plaintext"), "{stderr}");
    }
    let server = Server::builder().listen("0.0.0.0:0").arg("--insecure-plaintext").start().unwrap();
    let port = server.address().port();
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    call_raw(&endpoint.connect().await.unwrap(), GET_CELLS, vec![]).await.unwrap();
    let files = Files::new();
    Server::builder().listen("0.0.0.0:0").config(files.config()).start().unwrap();
}

/// Returns the certificate in DER form that the server presents on a new connection; `None` if the
/// handshake fails.
async fn shown(server: &Server, authority: &Authority) -> Option<Vec<u8>> {
    let stream = authority.connect(server.address(), None, "h2").await.ok()?;
    let (_, session) = stream.get_ref();
    Some(session.peer_certificates()?.first()?.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_certificates_are_loaded_without_a_restart() {
    let files = Files::new();
    let server = files.start();
    let admin = |authority: &Authority| authority.client(&["spiffe://leasehold/admin"]).unwrap();
    let old = files.authority.client_config(Some(&admin(&files.authority)));
    let open = server.connect(Some(old.clone())).await.unwrap();
    call_raw(&open, GET_CELLS, vec![]).await.unwrap();

    let second = Authority::new("second").unwrap();
    let pair = second.server().unwrap();
    files.write(&pair, &second);
    let der = pair.der().unwrap().to_vec();
    eventually("the second certificate is shown", async || {
        (shown(&server, &second).await.as_ref() == Some(&der)).then_some(())
    })
    .await
    .unwrap();

    // The server accepts new connections of the new authority's clients, and refuses those of the
    // old authority's clients. Open connections of the old authority's clients end.
    let channel = server.connect(Some(second.client_config(Some(&admin(&second))))).await.unwrap();
    call_raw(&channel, GET_CELLS, vec![]).await.unwrap();
    let stream = second.connect(server.address(), Some(&admin(&files.authority)), "h2").await.unwrap();
    assert!(alert(stream).await.contains("UnknownCA"));
    eventually("the open connection ends", async || call_raw(&open, GET_CELLS, vec![]).await.err()).await.unwrap();
}

/// Reloads the configuration, and waits until the log has a further line with this text.
async fn reload(server: &Server, config: &str, text: &str) {
    let before = server.stderr().matches(text).count();
    server.write_config(&format!("{config}{DEVELOPMENT_CELLS}")).unwrap();
    server.signal(Signal::SIGHUP).unwrap();
    let logged = async || (server.stderr().matches(text).count() > before).then_some(());
    eventually(text, logged).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_on_open_connections_is_judged_again_after_a_reload() {
    let files = Files::new();
    let server = files.start();
    let admin = files.authority.client(&["spiffe://leasehold/admin"]).unwrap();
    let open = server.connect(Some(files.authority.client_config(Some(&admin)))).await.unwrap();
    call_raw(&open, GET_CELLS, vec![]).await.unwrap();
    let moved = files.config() + "trust_domain = \"elsewhere\"\n";

    std::fs::write(files.path("empty.pem"), "").unwrap();
    let unusable = moved.replace("clients.pem", "empty.pem");
    reload(&server, &unusable, "the configuration is not reloaded").await;
    call_raw(&open, GET_CELLS, vec![]).await.unwrap();

    reload(&server, &moved, "the configuration is reloaded, changed: `tls.trust_domain`").await;
    let refusal = Refusal::of(&call_raw(&open, GET_CELLS, vec![]).await.unwrap_err());
    assert_eq!(refusal.code_and_reason(), (Code::Unauthenticated, "NO_IDENTITY"));

    reload(&server, &files.config(), "the configuration is reloaded").await;
    call_raw(&open, GET_CELLS, vec![]).await.unwrap();
    let second = Authority::new("second").unwrap();
    std::fs::write(files.path("second.pem"), second.pem()).unwrap();
    let other = files.config().replace("clients.pem", "second.pem");
    reload(&server, &other, "changed: `tls.client_ca`").await;
    eventually("the open connection ends", async || call_raw(&open, GET_CELLS, vec![]).await.err()).await.unwrap();
    let stream = files.authority.connect(server.address(), Some(&admin), "h2").await.unwrap();
    assert!(alert(stream).await.contains("UnknownCA"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_client_is_refused_and_its_open_connection_ends() {
    let files = Files::new();
    let authority = &files.authority;
    let [kept, revoked] = [(); 2].map(|()| authority.client(&["spiffe://leasehold/admin"]).unwrap());
    let write = |text: String| std::fs::write(files.path("revoked.pem"), text).unwrap();
    write(authority.revocation_list(&[], 2100).unwrap());
    let config = format!("{}client_crl = {:?}\n", files.config(), files.path("revoked.pem"));
    let server = Server::builder().config(config).start().unwrap();
    let connect = async |pair: &Pair| server.connect(Some(authority.client_config(Some(pair)))).await.unwrap();
    let open = [connect(&kept).await, connect(&revoked).await];
    for channel in &open {
        call_raw(channel, GET_CELLS, vec![]).await.unwrap();
    }

    // The successor of this revocation list is overdue. The server still refuses the certificates
    // on the list.
    write(authority.revocation_list(&[&revoked], 2002).unwrap());
    let gone = async || call_raw(&open[1], GET_CELLS, vec![]).await.err();
    eventually("the connection of the revoked client ends", gone).await.unwrap();
    call_raw(&open[0], GET_CELLS, vec![]).await.unwrap();
    let stream = authority.connect(server.address(), Some(&revoked), "h2").await.unwrap();
    let alert = alert(stream).await;
    assert!(alert.contains("CertificateRevoked"), "{alert}");
    call_raw(&connect(&kept).await, GET_CELLS, vec![]).await.unwrap();
    let warned = async || server.stderr().contains("should have been replaced by ").then_some(());
    eventually("the overdue list is warned of", warned).await.unwrap();

    // A list of another authority says nothing about these clients, so the server refuses all of
    // them.
    write(Authority::new("other").unwrap().revocation_list(&[], 2100).unwrap());
    let gone = async || call_raw(&open[0], GET_CELLS, vec![]).await.err();
    eventually("the connection of a client without a list ends", gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_becomes_overdue_is_warned_of_once_and_has_its_date_as_a_metric() {
    const EIGHTY_YEARS: i64 = 80 * 366 * 24 * 3600;
    let files = Files::new();
    std::fs::write(files.path("revoked.pem"), files.authority.revocation_list(&[], 2100).unwrap()).unwrap();
    let config =
        format!("metrics_listen = \"127.0.0.1:0\"\n{}client_crl = {:?}\n", files.config(), files.path("revoked.pem"));
    let directory = TempDir::new().unwrap();
    let clock = FalseClock::new(directory.path(), 0).unwrap();
    let server = clock.given_to(Server::builder().config(config)).start().unwrap();
    let printed = async || server.stdout().split_once("http://").map(|(_, rest)| rest.to_owned());
    let rest = eventually("the metrics' address", printed).await.unwrap();
    let address = rest.split("/metrics").next().unwrap().parse().unwrap();
    let due = "leasehold_tls_file_end_seconds{file=\"revocation_list\"} 4102444800\n";
    let published = async || get(address, "/metrics").await.unwrap().1.contains(due).then_some(());
    eventually("the date of the next list", published).await.unwrap();
    let warnings = || server.stderr().matches("should have been replaced by ").count();
    assert_eq!(warnings(), 0, "{}", server.stderr());

    clock.set(EIGHTY_YEARS).unwrap();
    eventually("the warning", async || (warnings() == 1).then_some(())).await.unwrap();
    // A replacement that is overdue too is another list, and is warned of again. Nothing else was.
    std::fs::write(files.path("revoked.pem"), files.authority.revocation_list(&[], 2002).unwrap()).unwrap();
    eventually("the next warning", async || server.stderr().contains("by Jan  1 00:00:00 2002").then_some(()))
        .await
        .unwrap();
    assert_eq!(warnings(), 2, "{}", server.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_certificate_and_one_without_a_role_have_distinct_messages() {
    let files = Files::new();
    let server = files.start();
    let elsewhere = files.authority.client(&["spiffe://elsewhere/admin"]).unwrap();
    for (pair, said) in
        [(None, "the call has no client certificate"), (Some(&elsewhere), "the client certificate has no role")]
    {
        let channel = server.connect(Some(files.authority.client_config(pair))).await.unwrap();
        let refusal = Refusal::of(&call_raw(&channel, GET_CELLS, vec![]).await.unwrap_err());
        assert_eq!(refusal.code_and_reason(), (Code::Unauthenticated, "NO_IDENTITY"));
        assert!(refusal.message.starts_with(said), "{}", refusal.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_server_certificate_is_warned_of_at_start_and_after_a_rotation() {
    let files = Files::new();
    files.write(&files.authority.expired_server().unwrap(), &files.authority);
    let server = files.start();
    let warning = format!("the certificate `{}` expired on ", files.path("server.pem").display());
    let printed = async || Some(server.stdout()).filter(|text| text.contains("\ntry: "));
    let banner = eventually("the banner", printed).await.unwrap();
    assert!(banner.contains(&format!("  warning   {warning}")), "{banner}");
    let logged = async |times: usize| {
        let warned = async || (server.stderr().matches(&warning).count() == times).then_some(());
        eventually("the warning", warned).await.unwrap();
    };
    logged(1).await;
    files.write(&files.authority.expired_server().unwrap(), &files.authority);
    logged(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_rotation_keeps_the_previous_certificates() {
    let files = Files::new();
    let server = files.start();
    let before = shown(&server, &files.authority).await.unwrap();
    let second = files.authority.server().unwrap();
    let complaints = || server.stderr().matches("the former ones stay in force").count();
    let mut seen = 0;
    for (what, name, content) in [
        ("noise", "server.pem", "noise"),
        ("a certificate that does not fit the key", "server.pem", second.certificate.as_str()),
        ("an authority that is none", "clients.pem", "noise"),
    ] {
        std::fs::write(files.path(name), content).unwrap();
        eventually("the log tells of the broken files", async || (complaints() > seen).then_some(())).await.unwrap();
        assert_eq!(shown(&server, &files.authority).await.as_ref(), Some(&before), "{what}");
        seen = complaints();
    }
    files.write(&second, &files.authority);
    let der = second.der().unwrap().to_vec();
    eventually("the mended certificate is shown", async || {
        (shown(&server, &files.authority).await.as_ref() == Some(&der)).then_some(())
    })
    .await
    .unwrap();
}

/// A configuration that derives roles from the common names of subjects, and trusts one load
/// balancer.
const SUBJECTS: &str = r#"
[subjects]
cell = "CELL-{id}"
router = "router.example"
admin = "admin.example"
balancers = ["balancer.example"]
"#;

/// The DER names `CN=CELL-2` and `CN=admin.example` in base64, as OpenSSL writes them.
const CELL_2: &str = "MBExDzANBgNVBAMMBkNFTEwtMg==";
const ADMIN: &str = "MBgxFjAUBgNVBAMMDWFkbWluLmV4YW1wbGU=";

/// Lists the leases of a cell with a subject in the header. Returns the code of the answer.
async fn list_as(channel: &Channel, cell_id: i64, subject: Option<&str>) -> Code {
    let mut stub = ClaimServiceClient::new(channel.clone());
    let mut request = tonic::Request::new(ListLeasesRequest { cell_id, ..ListLeasesRequest::default() });
    if let Some(subject) = subject {
        request.metadata_mut().insert("x-client-runway-cc-subject-dn", subject.parse().unwrap());
    }
    stub.list_leases(request).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rpc_allows_exactly_the_roles_of_common_names() {
    let files = Files::new();
    let server = Server::builder().config(files.config() + SUBJECTS).start().unwrap();
    for (name, role) in [
        ("CELL-1", Role::Cell(1)),
        ("CELL-2", Role::Cell(2)),
        ("router.example", Role::Router),
        ("admin.example", Role::Admin),
        ("CELL-01", Role::Nobody),
        ("balancer.example", Role::Nobody),
    ] {
        let pair = files.authority.client_named(name).unwrap();
        let channel = server.connect(Some(files.authority.client_config(Some(&pair)))).await.unwrap();
        check_every_rpc(&channel, name, role).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_in_a_header_is_believed_from_a_balancer_alone() {
    let files = Files::new();
    let server = Server::builder().config(files.config() + SUBJECTS).start().unwrap();
    let connect = async |name: &str| {
        let pair = files.authority.client_named(name).unwrap();
        server.connect(Some(files.authority.client_config(Some(&pair)))).await.unwrap()
    };
    let balancer = connect("balancer.example").await;
    for (cell, subject, code) in [
        (2, Some(CELL_2), Code::Ok),
        (1, Some(CELL_2), Code::PermissionDenied),
        (1, Some(ADMIN), Code::Ok),
        (1, None, Code::Unauthenticated),
        (1, Some("no name"), Code::Unauthenticated),
    ] {
        assert_eq!(list_as(&balancer, cell, subject).await, code, "{cell} {subject:?}");
    }
    let refusal = Refusal::of(&call_raw(&balancer, GET_CELLS, vec![]).await.unwrap_err());
    assert!(refusal.message.starts_with("the balancer's request names no client"), "{}", refusal.message);
    let cell = connect("CELL-1").await;
    assert_eq!(list_as(&cell, 1, Some(ADMIN)).await, Code::Ok, "as cell 1");
    assert_eq!(list_as(&cell, 2, Some(ADMIN)).await, Code::PermissionDenied, "as cell 1");
    let nobody = connect("elsewhere.example").await;
    assert_eq!(list_as(&nobody, 1, Some(ADMIN)).await, Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_in_a_header_is_believed_over_loopback_if_configured() {
    let server = Server::builder().config(format!("{SUBJECTS}loopback_balancer = true\n")).start().unwrap();
    let channel = server.connect(None).await.unwrap();
    assert_eq!(list_as(&channel, 2, Some(CELL_2)).await, Code::Ok);
    assert_eq!(list_as(&channel, 1, Some(CELL_2)).await, Code::PermissionDenied);
    assert_eq!(list_as(&channel, 1, None).await, Code::Unauthenticated, "without the header nobody is trusted");

    let trusting = Server::start().unwrap();
    let channel = trusting.connect(None).await.unwrap();
    assert_eq!(list_as(&channel, 1, Some(CELL_2)).await, Code::Ok, "the header has no effect");
    let (_, metrics) = get(trusting.address(), "/metrics").await.unwrap();
    assert!(metrics.contains("leasehold_subject_headers_removed_total 1\n"), "{metrics}");
}
