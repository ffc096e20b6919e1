//! `leasehold doctor` names each problem that would keep a server from its clients.

use std::path::Path;
use std::time::{Duration, SystemTime};

use leasehold_tests::certificates::Authority;
use leasehold_tests::server::{DEVELOPMENT_CELLS, Server};
use leasehold_tests::wire::leasehold;
use serde_json::Value;
use tempfile::TempDir;

/// A valid configuration with certificates and a store, in which a test then makes faults.
struct World(TempDir);

impl World {
    async fn new() -> Self {
        let world = Self(TempDir::new().unwrap());
        let authority = Authority::new("doctor").unwrap();
        let pair = authority.server().unwrap();
        for (name, text) in [("ca.pem", authority.pem()), ("server.pem", pair.certificate), ("server.key", pair.key)] {
            std::fs::write(world.path(name), text).unwrap();
        }
        let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"ca.pem\"\n";
        std::fs::write(world.path("leasehold.toml"), format!("data = \"data\"\n{tls}{DEVELOPMENT_CELLS}")).unwrap();
        let config = world.path("leasehold.toml");
        assert!(leasehold(["init", "--config", &config]).await.unwrap().status.success());
        world
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs `leasehold doctor`. Returns its exit code, and the state and text of each check.
    async fn examine(&self) -> (Option<i32>, Vec<[String; 3]>) {
        let output = leasehold(["doctor", "--json", "--config", &self.path("leasehold.toml")]).await.unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let finding = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            ["check", "state", "text"].map(|name| line[name].as_str().unwrap().to_owned())
        };
        (output.status.code(), lines.lines().map(finding).collect())
    }

    async fn expect(&self, code: i32, check: &str, state: &str, words: &str) {
        let (found, findings) = self.examine().await;
        assert_eq!(found, Some(code), "{findings:?}");
        let is_expected = |[at, as_state, text]: &[String; 3]| at == check && as_state == state && text.contains(words);
        assert!(findings.iter().any(is_expected), "no {state} of {check} with `{words}`: {findings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_server_has_nothing_to_mend() {
    let world = World::new().await;
    let (code, findings) = world.examine().await;
    assert_eq!(code, Some(0));
    let checks: Vec<_> = findings.iter().map(|[check, state, _]| (check.as_str(), state.as_str())).collect();
    let sound = ["configuration", "certificates", "clock", "store", "unicode", "open files"].map(|check| (check, "ok"));
    assert_eq!(checks, sound, "{findings:?}");
    assert!(findings[3][2].contains("(0 claims, 0 leases, fence 0)"), "{findings:?}");

    let text = leasehold(["doctor", "--config", &world.path("leasehold.toml")]).await.unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("ok    configuration  `"), "{text}");
    let server = Server::start().unwrap();
    let data = server.data().to_str().unwrap();
    let busy = leasehold(["doctor", "--deep", "--data", data]).await.unwrap();
    let text = String::from_utf8(busy.stdout).unwrap();
    assert!(busy.status.success() && text.contains("is in use by a running server"), "{text}");
    assert!(text.contains("no row was read, because a running server uses the store"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_problem_is_named() {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.path("leasehold.toml")).unwrap();
    let change = |from: &str, to: &str| std::fs::write(world.path("leasehold.toml"), config.replace(from, to)).unwrap();

    change("data = \"data\"", "data = \"dtaa\"");
    world.expect(1, "store", "fail", "there is no store in ").await;
    assert!(!Path::new(&world.path("dtaa")).exists());
    let (_, findings) = world.examine().await;
    assert!(findings.iter().all(|[check, ..]| check != "clock"), "without a store no clock is judged: {findings:?}");
    change("data = \"data\"", "dat = \"data\"");
    world.expect(1, "configuration", "fail", "unknown field `dat`").await;
    change("", "");

    let other = Authority::new("other").unwrap().server().unwrap();
    let key = std::fs::read_to_string(world.path("server.key")).unwrap();
    std::fs::write(world.path("server.key"), other.key).unwrap();
    world.expect(1, "certificates", "fail", "server.pem").await;
    std::fs::write(world.path("server.key"), &key).unwrap();
    let authority = std::fs::read_to_string(world.path("ca.pem")).unwrap();
    let own = std::fs::read_to_string(world.path("server.pem")).unwrap();
    std::fs::write(world.path("server.pem"), format!("{own}{}{authority}", other.certificate)).unwrap();
    world.expect(0, "certificates", "warn", "put each certificate before that of its issuer").await;
    let expired = Authority::new("expired").unwrap().expired_server().unwrap();
    std::fs::write(world.path("server.pem"), &expired.certificate).unwrap();
    std::fs::write(world.path("server.key"), &expired.key).unwrap();
    world.expect(1, "certificates", "fail", "server.pem` expired on ").await;
    std::fs::write(world.path("server.pem"), own).unwrap();
    std::fs::write(world.path("server.key"), key).unwrap();

    let written = std::fs::File::open(world.path("data/acknowledged")).unwrap();
    written.set_modified(SystemTime::now() + Duration::from_secs(3_600)).unwrap();
    world.expect(1, "clock", "fail", " s behind the last write of the store").await;
}
