//! Tests of the files in `deploy`: the alert rules, the dashboard, the unit of systemd and the
//! manifests of Kubernetes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use leasehold_core::lease::Outcome;
use leasehold_server::config::Config;
use leasehold_tests::book::{blocks, document};
use leasehold_tests::certificates::Authority;
use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::server::{Server, binary};
use leasehold_tests::wire::{eventually, get, http};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the names of metrics in a text.
fn named_metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| word.starts_with("leasehold_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

/// Returns the names under which queries find the metrics of a scrape.
fn queried_names(scrape: &str) -> BTreeSet<String> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = types.flat_map(|(name, kind)| {
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["", "_bucket", "_sum", "_count"],
            _ => &[""],
        };
        suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
    });
    names.collect()
}

/// Returns a scrape of a server that has answered, rejected and shed calls: a metric with labels
/// begins with its first event.
async fn scrape() -> String {
    // The relay finds no database, so it has all of its metrics.
    let relay = "[[relays]]\nname = \"shop\"\nurl = \"postgres://127.0.0.1:1/shop\"\n";
    let config = format!("{relay}[limits]\nheld_claims = 1\n");
    let server = Server::builder().config(config).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let update = |name: &str| Update { creates: vec![user(name, 7, Vec::new())], ..Update::default() };
    let begun = client.begin(update("alice")).await.unwrap();
    client.begin(update("bob")).await.unwrap_err();
    client.settle(&begun.lease, Outcome::Committed).await.unwrap();
    client.begin(update("alice")).await.unwrap_err();
    let scrape = async || {
        let scrape = get(server.address(), "/metrics").await.unwrap().1;
        scrape.contains("state=\"failing\"} 1").then_some(scrape)
    };
    eventually("the relay fails", scrape).await.unwrap()
}

/// Returns a scrape of a server with TLS, whose files have an end.
async fn scrape_of_tls() -> String {
    let (authority, directory) = (Authority::new("deploy").unwrap(), TempDir::new().unwrap());
    let pair = authority.server().unwrap();
    let list = authority.revocation_list(&[], 2100).unwrap();
    let mut config = "metrics_listen = \"127.0.0.1:0\"\n[tls]\n".to_owned();
    for (setting, text) in
        [("certificate", pair.certificate), ("key", pair.key), ("client_ca", authority.pem()), ("client_crl", list)]
    {
        let file = directory.path().join(setting);
        std::fs::write(&file, text).unwrap();
        config += &format!("{setting} = {file:?}\n");
    }
    let server = Server::builder().config(config).start().unwrap();
    let printed = async || server.stdout().split_once("http://").map(|(_, rest)| rest.to_owned());
    let rest = eventually("the address of the metrics", printed).await.unwrap();
    let address = rest.split("/metrics").next().unwrap().parse().unwrap();
    let scrape = async || {
        let scrape = get(address, "/metrics").await.unwrap().1;
        ["certificate", "revocation_list"].iter().all(|file| scrape.contains(file)).then_some(scrape)
    };
    eventually("the ends of the files", scrape).await.unwrap()
}

/// Returns every `expr` and query of a dashboard.
fn queries(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(queries).collect(),
        Value::Object(members) => {
            let own = ["expr", "query"].iter().filter_map(|key| members.get(*key)?.as_str().map(str::to_owned));
            own.chain(members.values().flat_map(queries)).collect()
        }
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_rules_and_the_dashboard_exists() {
    let mut known = queried_names(&scrape().await);
    known.extend(queried_names(&scrape_of_tls().await));
    assert!(known.len() > 40, "{known:?}");
    let dashboard: Value = serde_json::from_str(&text("grafana/leasehold.json")).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 30, "{queries:?}");
    let rules = text("prometheus/alerts.yaml") + &text("prometheus/alerts_test.yaml");
    for (file, used) in [("the dashboard", named_metrics(&queries.join("\n"))), ("the rules", named_metrics(&rules))] {
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(!used.is_empty() && unknown.is_empty(), "{file}: {unknown:?}");
    }
    let shown = named_metrics(&queries.join("\n"));
    let base =
        |name: &str| ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it)).map(str::to_owned);
    let is_shown = |name: &&String| {
        shown.contains(*name)
            || shown.iter().any(|shown| base(shown).is_some_and(|shown| shown == **name))
            || base(name).is_some()
            || *name == "process_virtual_memory_bytes"
    };
    let hidden: Vec<_> = known.iter().filter(|name| !is_shown(name)).collect();
    assert!(hidden.is_empty(), "the dashboard lacks {hidden:?}");
}

#[test]
fn the_alert_rules_are_valid_and_each_fires_for_its_cause() {
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(path("prometheus")).output().unwrap();
        assert!(output.status.success() && said(&output).contains("SUCCESS"), "{}", said(&output));
    }
    let tests = text("prometheus/alerts_test.yaml");
    let rules = text("prometheus/alerts.yaml");
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        let is_silent = format!("alertname: {alert} }}");
        assert!(tests.contains(&fires) && tests.contains(&is_silent), "{alert} has no test");
    }
}

/// Writes a unit of systemd into a directory, which may have drop-ins for it. Returns what systemd has against the unit.
fn complaints(directory: &Path, path: &str, program: &str) -> Vec<String> {
    let unit = text(path).replace(program, &binary().unwrap().display().to_string());
    let name = path.split_once('/').unwrap().1;
    let file = directory.join(name);
    std::fs::write(&file, unit).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap();
    said(&output).lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}

#[test]
fn the_units_of_systemd_are_valid() {
    let directory = TempDir::new().unwrap();
    for (path, program) in
        [("systemd/leasehold.service", "/usr/bin/leasehold"), ("patroni/patroni.service", "/opt/patroni/bin/patroni")]
    {
        let complaints = complaints(directory.path(), path, program);
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}

#[test]
fn the_drop_in_for_a_shared_store_takes_the_data_directory_from_the_unit() {
    let directory = TempDir::new().unwrap();
    let drop_in = blocks(&document("docs/src/deploy/systemd.md").unwrap(), "ini").remove(0);
    let unit = text("systemd/leasehold.service");
    let command = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    assert_eq!(
        drop_in.trim_end(),
        format!("[Service]\nExecStart=\n{}", command.replace(" --data /var/lib/leasehold", ""))
    );
    let read_me = text("debian/README.Debian");
    assert!(drop_in.lines().all(|line| read_me.contains(&format!("     {line}\n"))), "{read_me}");
    let drop_ins = directory.path().join("leasehold.service.d");
    std::fs::create_dir(&drop_ins).unwrap();
    for (text, count) in [(drop_in.replace("ExecStart=\n", ""), 1), (drop_in, 0)] {
        let text = text.replace("/usr/bin/leasehold", &binary().unwrap().display().to_string());
        std::fs::write(drop_ins.join("store.conf"), text).unwrap();
        let complaints = complaints(directory.path(), "systemd/leasehold.service", "/usr/bin/leasehold");
        assert_eq!(complaints.len().min(1), count, "{complaints:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifests_of_kubernetes_have_a_valid_configuration_and_served_probes() {
    let manifests = text("kubernetes/leasehold.yaml");
    let (_, rest) = manifests.split_once("  leasehold.toml: |\n").unwrap();
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("leasehold.toml");
    std::fs::write(&file, lines.map(str::trim_start).collect::<Vec<_>>().join("\n")).unwrap();
    let config = Config::read(&file).unwrap().checked().unwrap();
    assert_eq!(config.metrics_listen.unwrap().port(), 9090);

    let server = Server::start().unwrap();
    let probes: BTreeSet<_> =
        manifests.split("httpGet: { path: ").skip(1).map(|rest| rest.split(',').next().unwrap()).collect();
    assert_eq!(probes, BTreeSet::from(["/livez", "/readyz"]));
    for probe in probes {
        // The kubelet sends the address of the pod as the host.
        let stream = TcpStream::connect(server.address()).await.unwrap();
        assert_eq!(http(stream, &format!("GET {probe} HTTP/1.1"), b"").await.unwrap().0, 200);
    }
}
