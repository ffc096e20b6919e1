//! Tests of stores: a server creates one only on request, each has an identity, and a restored copy
//! gives higher fences.

use std::path::Path;
use std::process::Output;

use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListLeasesRequest;
use leasehold_tests::server::{DEVELOPMENT_CELLS, Server};
use leasehold_tests::wire::{Refusal, command, creates, eventually, leasehold};
use serde_json::Value;
use tempfile::TempDir;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request};
use uuid::Uuid;

use super::{Claims, await_banner, begin, commit};

/// The number by which a restored copy's fences are raised.
const JUMP: u64 = 1 << 40;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs `leasehold init --json` on a data directory. Returns its result.
async fn init(data: &Path) -> Value {
    let output = leasehold(["init", "--json", "--data", data.to_str().unwrap()]).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs `leasehold serve` in a working directory until it ends by itself.
async fn serve_in(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = command().unwrap();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).current_dir(directory);
    tokio::time::timeout(std::time::Duration::from_secs(60), command.output()).await.unwrap().unwrap()
}

/// Returns the line of the banner with the store's identity and contents.
async fn store_line(server: &Server) -> String {
    let banner = await_banner(server).await;
    let line = banner.lines().find_map(|line| line.strip_prefix("  store     "));
    line.unwrap_or_else(|| panic!("{banner}")).to_owned()
}

fn store_id(metadata: &MetadataMap) -> Option<&str> {
    metadata.get("leasehold-store-id")?.to_str().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_with_a_typo_is_refused_and_nothing_is_made() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("leasehold.toml");
    std::fs::write(&config, format!("data = \"dtaa\"\n{DEVELOPMENT_CELLS}")).unwrap();
    let (typo, empty) = (directory.path().join("dtaa"), directory.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    let [typo, config, empty] = [&typo, &config, &empty].map(|path| path.to_str().unwrap());
    for (arguments, shown) in
        [(["--data", typo], typo), (["--data", "dtaa"], typo), (["--config", config], typo), (["--data", empty], empty)]
    {
        let output = serve_in(directory.path(), &arguments).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with(&format!("error: there is no store in `{shown}`: check the path")), "{stderr}");
        assert!(stderr.contains("`leasehold init`") && stderr.contains("`--create`"), "{stderr}");
        assert!(output.stdout.is_empty() && !Path::new(typo).exists(), "{arguments:?}");
        assert_eq!(std::fs::read_dir(empty).unwrap().count(), 0, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_made_by_init_or_by_the_flag_or_for_development() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("made");
    let made = init(&data).await;
    assert_eq!((&made["done"], &made["location"]), (&"made".into(), &data.to_str().unwrap().into()));
    let id = made["store"].as_str().unwrap();
    assert_eq!(id.parse::<Uuid>().unwrap().to_string(), id);
    let found = init(&data).await;
    assert_eq!((&found["done"], &found["store"]), (&"found".into(), &made["store"]));
    let server = Server::builder().data(&data).expect_store().start().unwrap();
    assert_eq!(store_line(&server).await, format!("{id} (0 claims, 0 leases, fence 0)"));

    let mut flagged = Server::builder().data(directory.path().join("flagged")).start().unwrap();
    let line = store_line(&flagged).await;
    let (made, words) = line.split_once(' ').unwrap();
    assert_eq!(words, "(made just now)");
    assert_ne!(made, id);
    flagged.restart().unwrap();
    assert_eq!(store_line(&flagged).await, format!("{made} (0 claims, 0 leases, fence 0)"));

    // A server without settings serves the store in the home directory of its user.
    let mut development = command().unwrap();
    development.args(["serve", "--listen", "127.0.0.1:0"]).env("HOME", directory.path()).env_remove("XDG_STATE_HOME");
    let _running = development.spawn().unwrap();
    let store = directory.path().join(".local/state/leasehold/acknowledged");
    eventually("the development store", async || store.exists().then_some(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_making_was_cut_short_counts_as_none() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("fjall")).unwrap();
    let data = directory.path().to_str().unwrap();
    let output = serve_in(directory.path(), &["--data", data]).await;
    assert!(text(&output.stderr).starts_with("error: there is no store in "), "{output:?}");
    assert_eq!(init(directory.path()).await["done"], "made");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_banner_says_what_is_in_the_store() {
    let mut server = Server::start().unwrap();
    let claims = server.claims(None).await.unwrap();
    commit(&claims, &begin(&claims, creates(1, &["a", "b"])).await.unwrap()).await.unwrap();
    begin(&claims, creates(2, &["c"])).await.unwrap();
    drop(claims);
    server.restart().unwrap();
    let line = store_line(&server).await;
    assert!(line.ends_with(" (3 claims, 1 lease, fence 2)"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_in_a_configuration_file_start_from_its_directory() {
    let directory = TempDir::new().unwrap();
    let (here, elsewhere) = (directory.path().join("here"), directory.path().join("elsewhere"));
    [&here, &elsewhere].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let files = "data = \"data\"\n[audit]\nfile = \"audit.jsonl\"\n";
    std::fs::write(here.join("leasehold.toml"), format!("{files}{DEVELOPMENT_CELLS}")).unwrap();
    for config in [here.join("leasehold.toml").to_str().unwrap(), "../here/leasehold.toml"] {
        let mut init = command().unwrap();
        let output = init.args(["init", "--config", config]).current_dir(&elsewhere).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        // The second server's port is taken, so this server ends after it has opened its files.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut serve = command().unwrap();
        serve.args(["serve", "--config", config, "--listen", &port.local_addr().unwrap().to_string()]);
        let output = serve.current_dir(&elsewhere).output().await.unwrap();
        assert!(text(&output.stderr).contains("can't listen"), "{output:?}");
        assert!(here.join("data/fjall").exists() && here.join("audit.jsonl").exists());
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "{config}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_tells_the_store_and_a_request_for_another_is_refused() {
    let server = Server::start().unwrap();
    let id = store_line(&server).await.split_once(' ').unwrap().0.to_owned();
    let mut claims: Claims = server.claims(None).await.unwrap();
    let leases = claims.list_leases(ListLeasesRequest { cell_id: 1, ..Default::default() }).await.unwrap();
    assert_eq!(store_id(leases.metadata()), Some(&*id));
    let begun = claims.begin_update(creates(1, &["a"])).await.unwrap();
    assert_eq!(store_id(begun.metadata()), Some(&*id));
    let refused = claims.begin_update(creates(1, &["a"])).await.unwrap_err();
    assert_eq!((refused.code(), store_id(refused.metadata())), (Code::FailedPrecondition, Some(&*id)));

    let asked = |expected: &str| {
        let mut request = Request::new(creates(1, &["b"]));
        request.metadata_mut().insert("leasehold-store-id", expected.parse().unwrap());
        request
    };
    let other = Uuid::nil().to_string();
    let refused = claims.begin_update(asked(&other)).await.unwrap_err();
    assert_eq!((refused.code(), store_id(refused.metadata())), (Code::FailedPrecondition, Some(&*id)));
    let refusal = Refusal::of(&refused);
    assert_eq!((&*refusal.reason, &refusal.metadata["store_id"]), ("OTHER_STORE", &id));
    let mut both = asked(&id);
    both.metadata_mut().append("leasehold-store-id", other.parse().unwrap());
    assert_eq!(Refusal::of(&claims.begin_update(both).await.unwrap_err()).reason, "OTHER_STORE");
    // The refused begin has claimed nothing, so another begin can claim the same name.
    claims.begin_update(asked(&id)).await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_a_restored_copy_keeps_its_identity_and_raises_its_fences() {
    let directory = TempDir::new().unwrap();
    let (audit, backup) = (directory.path().join("audit"), directory.path().join("backup"));
    let mut server = Server::start().unwrap();
    let claims = server.claims(None).await.unwrap();
    begin(&claims, creates(1, &["before"])).await.unwrap();
    drop(claims);
    server.kill_9().unwrap();
    copy(server.data(), &backup);
    server.restart().unwrap();
    let id = store_line(&server).await.split_once(' ').unwrap().0.to_owned();
    let lost = server.claims(None).await.unwrap().begin_update(creates(1, &["lost"])).await.unwrap();
    let fence = |metadata: &MetadataMap| metadata.get("leasehold-fence").unwrap().to_str().unwrap().parse::<u64>();

    let config = format!("[audit]\nfile = {audit:?}\n");
    let restored = Server::builder().data(&backup).config(config).expect_store().arg("--restored").start().unwrap();
    let banner = await_banner(&restored).await;
    let raised = format!("its fences were raised from 1 to {}", 1 + JUMP);
    assert!(banner.contains(&id) && banner.contains(&raised) && banner.contains("`--restored`"), "{banner}");
    let next = restored.claims(None).await.unwrap().begin_update(creates(1, &["next"])).await.unwrap();
    let (lost, next) = (fence(lost.metadata()).unwrap(), fence(next.metadata()).unwrap());
    assert!(next > lost && next == 2 + JUMP, "{next} {lost}");
    let lines = async || std::fs::read_to_string(&audit).ok().filter(|text| text.lines().count() == 2);
    let lines = eventually("the audit trail", lines).await.unwrap();
    let event: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&event["message"], &event["caller"]), (&"store restored".into(), &"server".into()), "{event}");
    assert_eq!((&event["store"], &event["fence_before"]), (&id.into(), &1.into()), "{event}");
    assert_eq!(event["fence_after"], 1 + JUMP, "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_store_has_an_identity_of_its_own() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let made = init(directory.path().join("one").as_path()).await;
    for arguments in [
        ["export", "--data", &path("one"), "--output", &path("lines")],
        ["import", "--data", &path("two"), "--input", &path("lines")],
    ] {
        assert!(leasehold(arguments).await.unwrap().status.success());
    }
    let imported = init(directory.path().join("two").as_path()).await;
    assert_eq!(imported["done"], "found");
    assert_ne!(imported["store"], made["store"]);
}
