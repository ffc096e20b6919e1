//! Tests of a reload of the configuration, by SIGHUP and by a call.

use leasehold_proto::gitlab::cells::topology_service::GetCellsRequest;
use leasehold_tests::certificates::Authority;
use leasehold_tests::server::{DEVELOPMENT_CELLS, Server};
use leasehold_tests::wire::{SlowCall, creates, eventually, leasehold, username};
use nix::sys::signal::Signal;
use prost::Message;
use prost_types::Any;
use tempfile::TempDir;

use super::{Claims, Scrape, begin, begin_slowly, commit, refused, update};

const CELL_3: &str = "[[cells]]\nid = 3\nname = \"third\"\naddress = \"third.example\"\n";

/// Writes another configuration, sends SIGHUP, and waits until the server's counter of reloads with
/// this outcome equals `times`.
async fn reload(server: &Server, config: &str, outcome: &str, times: f64) {
    server.write_config(config).unwrap();
    server.signal(Signal::SIGHUP).unwrap();
    let name = format!("leasehold_config_reloads_total{{outcome=\"{outcome}\"}}");
    let counted = async || (Scrape::of(server.address()).await.get(&name) == times).then_some(());
    eventually(&name, counted).await.unwrap();
}

async fn await_line(server: &Server, text: &str) -> String {
    let line = async || server.stderr().lines().find(|line| line.contains(text)).map(str::to_owned);
    eventually(text, line).await.unwrap()
}

async fn cells(claims: &Claims) -> Vec<i64> {
    let cells = claims.clone().get_cells(GetCellsRequest {}).await.unwrap().into_inner().cells;
    cells.into_iter().map(|cell| cell.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_an_administrator_moves_the_address_of_a_cell_by_command() {
    let server = Server::builder().config("min_free_disk_mib = 1\n").start().unwrap();
    let address = format!("http://{}", server.address());
    let run = async |verb: &str| leasehold([verb, "--server", &address]).await.unwrap();
    let moved = DEVELOPMENT_CELLS.replace("127.0.0.1:3002", "moved.example:443");
    assert_ne!(moved, DEVELOPMENT_CELLS);
    server.write_config(&format!("min_free_disk_mib = 1\nmetrics_listen = \"127.0.0.1:0\"\n{moved}")).unwrap();
    let reloaded = run("reload").await;
    assert!(reloaded.status.success(), "{reloaded:?}");
    let shown = String::from_utf8(reloaded.stdout).unwrap();
    assert_eq!(shown, "changed: cells[2].address\nkept until a restart: metrics_listen\n");
    let cells = String::from_utf8(run("cells").await.stdout).unwrap();
    assert!(cells.contains("moved.example"), "{cells}");

    server.write_config("cells = 7").unwrap();
    let refused = run("reload").await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("the former one stays in force") && said.contains("CONFIG_REFUSED"), "{said}");
    assert!(String::from_utf8(run("cells").await.stdout).unwrap().contains("moved.example"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reloads_cells_types_limits_and_the_log_filter() {
    let server = Server::builder().config("min_free_disk_mib = 1\n").start().unwrap();
    let claims = server.claims(None).await.unwrap();
    assert_eq!(cells(&claims).await, [1, 2]);
    begin(&claims, creates(1, &["before"])).await.unwrap();
    let reloads =
        ["applied", "refused"].map(|outcome| format!("leasehold_config_reloads_total{{outcome=\"{outcome}\"}}"));
    let scrape = Scrape::of(server.address()).await;
    assert_eq!(reloads.map(|name| scrape.0.get(&name).copied()), [Some(0.0); 2]);

    let types = "[[bucket_types]]\nnumber = 1000\nname = \"TEAMS\"\nform = \"word\"\nfold_case = true\n";
    let limits = "[limits]\nuser_data_bytes = 8\nheld_claims = 3\nconcurrent_lists = 4\nanswer_mib = 5\nanswer_mib_per_connection = 4\nanswer_seconds = 9\n";
    let config = format!(
        "min_free_disk_mib = 1\n{limits}[log]\nfilter = \"info,audit=off\"\n{types}{DEVELOPMENT_CELLS}{CELL_3}"
    );
    reload(&server, &config, "applied", 1.0).await;
    let line = await_line(&server, "the configuration is reloaded, changed: ").await;
    let changed = "`bucket_types[1000]`, `cells[3]`, `limits.answer_mib`, `limits.answer_mib_per_connection`, `limits.answer_seconds`, `limits.concurrent_lists`, `limits.held_claims`, `limits.user_data_bytes`, `log.filter`";
    assert!(line.ends_with(changed), "{line}");

    assert_eq!(cells(&claims).await, [1, 2, 3]);
    let mut too_much = username("attached");
    too_much.user_data = Some(Any { value: vec![0; 9], ..Any::default() });
    let refusal = refused(begin(&claims, update(vec![too_much], Vec::new())).await);
    assert_eq!((refusal.reason.as_str(), refusal.figure("max")), ("LIMIT_EXCEEDED", Some("8")));
    let audited = server.stderr().matches("lease begun").count();
    begin(&claims, creates(3, &["third"])).await.unwrap();
    assert_eq!(refused(begin(&claims, creates(1, &["a", "b", "c"])).await).figure("limit"), Some("limits.held_claims"));
    assert_eq!(server.stderr().matches("lease begun").count(), audited, "the audit trail is off");

    reload(&server, &config.replace("info,audit=off", "info"), "applied", 2.0).await;
    begin(&claims, creates(2, &["audited"])).await.unwrap();
    await_line(&server, "lease begun").await;
    let text = "no setting has changed";
    assert!(!server.stderr().contains(text));
    server.signal(Signal::SIGHUP).unwrap();
    await_line(&server, text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_is_refused_as_a_whole() {
    let server = Server::builder().config("").start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let with_third = format!("{DEVELOPMENT_CELLS}{CELL_3}");
    let rule = "[[bucket_types]]\nnumber = 1000\nname = \"TEAMS\"\nform = \"word\"\nfold_case = ";
    let types = format!("{rule}true\n{DEVELOPMENT_CELLS}");
    reload(&server, &types, "applied", 1.0).await;
    let bad = [
        (format!("[limits]\nconnections = 0\n{with_third}"), "`limits.connections` is 0"),
        (format!("no_such_setting = 1\n{with_third}"), "no_such_setting"),
        (format!("[log]\nfilter = \"loud\"\n{with_third}"), "the log filter `loud` can't be used"),
        (format!("{rule}false\n{with_third}"), "1000"),
        ("[limits]\nconnections = 5\n".to_owned(), "the configuration has no `[[cells]]`"),
    ];
    for (times, (config, said)) in (1..).zip(&bad) {
        reload(&server, config, "refused", f64::from(times)).await;
        let lines = async || {
            let log = server.stderr();
            let lines: Vec<_> = log.lines().filter(|line| line.contains("the former one stays in force")).collect();
            lines.get(usize::try_from(times).unwrap() - 1).map(|line| (*line).to_owned())
        };
        let line = eventually("the error", lines).await.unwrap();
        assert!(line.contains("ERROR") || line.contains("\"ERROR\""), "{line}");
        assert!(server.has_logged(said), "{said}: {}", server.stderr());
        assert_eq!(cells(&claims).await, [1, 2], "{config}");
    }
    std::fs::remove_file(server.config_path()).unwrap();
    server.signal(Signal::SIGHUP).unwrap();
    await_line(&server, "can't be read").await;
    let uuid = begin(&claims, creates(1, &["after"])).await.unwrap();
    commit(&claims, &uuid).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_need_a_restart_are_named_and_keep_their_values() {
    let server = Server::builder().config("").start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let secret = "settled_retention_seconds = 7654321\nmetrics_listen = \"127.0.0.1:1\"\n[log]\nformat = \"json\"\n";
    reload(&server, &format!("{secret}{DEVELOPMENT_CELLS}{CELL_3}"), "applied", 1.0).await;
    let line = await_line(&server, "restart the server to change ").await;
    let named =
        "`log.format`, `metrics_listen`, `settled_retention_seconds`: what was set before stays in force until then";
    assert!(line.ends_with(named), "{line}");
    assert_eq!(cells(&claims).await, [1, 2, 3]);
    assert!(!server.stderr().contains("7654321"));
    assert!(!line.starts_with('{'), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_by_the_configuration_of_its_head() {
    let server = Server::builder().config("").start().unwrap();
    let channel = server.connect(None).await.unwrap();
    let SlowCall { message, answer } = begin_slowly(&channel).await;
    reload(&server, CELL_3, "applied", 1.0).await;
    let claims = Claims::new(channel);
    assert_eq!(refused(begin(&claims, creates(1, &["new"])).await).reason, "INVALID_UPDATE");
    message.send(creates(1, &["under-way"]).encode_to_vec()).await.unwrap();
    drop(message);
    answer.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_refuses_tls_with_files_that_the_next_start_could_not_read() {
    let server = Server::builder().config("").start().unwrap();
    let tls = "[tls]\ncertificate = \"absent.pem\"\nkey = \"absent.key\"\nclient_ca = \"absent-ca.pem\"\n";
    reload(&server, &format!("{tls}{DEVELOPMENT_CELLS}"), "refused", 1.0).await;
    let line = await_line(&server, "the configuration is not reloaded").await;
    assert!(line.contains("absent"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_checks_what_takes_effect_with_the_next_start() {
    let server = Server::builder().config("").start().unwrap();
    reload(&server, &format!("[audit]\nfile = \"absent/audit\"\n{DEVELOPMENT_CELLS}"), "refused", 1.0).await;
    await_line(&server, "the audit file ").await;
    reload(&server, &format!("[audit]\nfile = \"audit\"\n{DEVELOPMENT_CELLS}"), "applied", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_place_of_a_file_is_refused_at_the_start_and_by_a_reload() {
    let (directory, authority) = (TempDir::new().unwrap(), Authority::new("first").unwrap());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let pair = authority.server().unwrap();
    for (name, text) in [("server.pem", pair.certificate), ("server.key", pair.key), ("ca.pem", authority.pem())] {
        std::fs::write(path(name), text).unwrap();
    }
    nix::unistd::mkfifo(path("pipe").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let names = ["certificate", "key", "client_ca", "client_crl"];
    let tls = |pipe: &str| {
        let files = ["server.pem", "server.key", "ca.pem", "absent"].map(path);
        let lines = names.iter().zip(files).filter(|(name, _)| **name != "client_crl" || pipe == "client_crl");
        let line =
            |(name, file): (&&str, String)| format!("{name} = '{}'\n", if *name == pipe { path("pipe") } else { file });
        format!("metrics_listen = \"127.0.0.1:0\"\n[tls]\n{}", lines.map(line).collect::<String>())
    };
    let said = "it is a pipe, not a file";
    for name in names {
        let refused = Server::builder().config(tls(name)).start().unwrap_err().to_string();
        assert!(refused.contains(said), "{name}: {refused}");
    }
    let server = Server::builder().config(tls("")).start().unwrap();
    server.write_config(&format!("{}{DEVELOPMENT_CELLS}", tls("client_crl"))).unwrap();
    server.signal(Signal::SIGHUP).unwrap();
    assert!(await_line(&server, said).await.contains("the configuration is not reloaded"));
}
