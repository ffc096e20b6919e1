//! Tests of the server's start: the banner with its proposed command, errors, and the precedence of
//! settings.

use std::process::Output;

use leasehold_tests::certificates::Authority;
use leasehold_tests::server::{DEVELOPMENT_CELLS, Server};
use leasehold_tests::wire::{command, creates, eventually, leasehold};
use tempfile::TempDir;

use super::{await_banner, begin, commit};

async fn serve(arguments: &[&str]) -> (Output, String) {
    let output = leasehold(["serve", "--listen", "127.0.0.1:0"].iter().chain(arguments)).await.unwrap();
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    (output, stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_banner_shows_the_address_and_a_command_that_works() {
    let server = Server::start().unwrap();
    let banner = await_banner(&server).await;
    assert_ne!(server.address().port(), 0);
    let address = server.address().to_string();
    for said in [&address, &server.data().display().to_string(), "1 (cell-1), 2 (cell-2)", "/metrics"] {
        assert!(banner.contains(said), "{said}: {banner}");
    }
    let tried = banner.lines().find_map(|line| line.strip_prefix("try: leasehold ")).unwrap();
    let output = leasehold(tried.split(' ')).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("begun lease "), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_banners_command_works_on_wildcard_addresses_and_under_tls() {
    let everywhere = Server::builder().listen("0.0.0.0:0").arg("--insecure-plaintext").start().unwrap();
    let banner = await_banner(&everywhere).await;
    let tried = banner.lines().find_map(|line| line.strip_prefix("try: leasehold ")).unwrap();
    let output = leasehold(tried.split(' ')).await.unwrap();
    assert!(output.status.success(), "{tried}: {output:?}");

    let (authority, directory) = (Authority::new("try").unwrap(), TempDir::new().unwrap());
    let (pair, cell) = (authority.server().unwrap(), authority.client(&["spiffe://leasehold/cell/1"]).unwrap());
    let ca = authority.pem();
    let files = [("CA.pem", &ca), ("S.pem", &pair.certificate), ("S.key", &pair.key)];
    for (name, text) in files.into_iter().chain([("CELL.pem", &cell.certificate), ("CELL.key", &cell.key)]) {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [certificate, key, client_ca] = ["S.pem", "S.key", "CA.pem"].map(path);
    let tls = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {client_ca:?}\n");
    let secured = Server::builder().config(tls).listen("[::]:0").start().unwrap();
    let banner = await_banner(&secured).await;
    let tried = banner.lines().find_map(|line| line.strip_prefix("try: leasehold ")).unwrap();
    let placeholders = ["CA.pem", "CELL.pem", "CELL.key"];
    let filled = tried.split(' ').map(|word| if placeholders.contains(&word) { path(word) } else { word.to_owned() });
    let output = leasehold(filled).await.unwrap();
    assert!(output.status.success(), "{tried}: {output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_the_watermark_is_told() {
    let scratch = TempDir::new().unwrap();
    let data = scratch.path().join("data");
    let named = scratch.path().join("elsewhere/../data");
    std::fs::create_dir(scratch.path().join("elsewhere")).unwrap();
    let mut server = Server::builder().data(&named).start().unwrap();
    let claims = server.claims(None).await.unwrap();
    begin(&claims, creates(1, &["a"])).await.unwrap();
    drop(claims);
    server.restart().unwrap();
    let banner = await_banner(&server).await;
    assert!(banner.contains(&format!("data in   {}\n", data.display())), "{banner}");
    assert!(!server.stderr().contains("was missing or empty"), "{}", server.stderr());

    assert!(server.terminate().unwrap().success());
    std::fs::remove_file(data.join("acknowledged")).unwrap();
    server.restart().unwrap();
    assert!(server.has_logged("was missing or empty"), "{}", server.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_banner_warns_of_unconfigured_cells_that_own_claims() {
    let data = TempDir::new().unwrap();
    let mut server = Server::builder().data(data.path()).start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let at_rest = begin(&claims, creates(1, &["a", "b"])).await.unwrap();
    commit(&claims, &at_rest).await.unwrap();
    begin(&claims, creates(2, &["held"])).await.unwrap();
    assert!(!await_banner(&server).await.contains("not configured"));
    drop(claims);
    assert!(server.terminate().unwrap().success());
    let only = |ids: &[i64]| {
        let cell = |id: &i64| format!("[[cells]]\nid = {id}\nname = \"cell-{id}\"\naddress = \"{id}.example\"\n");
        ids.iter().map(cell).collect::<String>()
    };
    for (cells, warning) in [
        (only(&[1]), "cell 2 owns claims but is not configured: its claims stay, its calls are refused"),
        (only(&[2, 3]), "cell 1 owns claims but is not configured"),
        (only(&[3]), "cells 1, 2 own claims but are not configured"),
    ] {
        let mut server = Server::builder().data(data.path()).config(cells).start().unwrap();
        let banner = await_banner(&server).await;
        assert!(banner.contains(&format!("  warning   {warning}")), "{banner}");
        assert!(server.terminate().unwrap().success());
        assert!(server.has_logged(warning), "{}", server.stderr());
    }
}

/// Returns the configuration of the bucket type `TEAMS`, with the lines `changed` in place of the
/// valid ones.
fn teams(changed: &str) -> String {
    let good = ["number = 100", "name = \"TEAMS\"", "form = \"word\"", "fold_case = false"];
    let key = |line: &str| line.split(" = ").next().map(str::to_owned);
    let kept = good.into_iter().filter(|line| !changed.lines().any(|changed| key(changed) == key(line)));
    let fields: String = kept.chain(changed.lines()).map(|line| format!("{line}\n")).collect();
    format!("\n[[bucket_types]]\n{fields}")
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_changed_rule_of_a_bucket_type_stops_the_start() {
    let data = TempDir::new().unwrap();
    let server = |types: &str| Server::builder().data(data.path()).config(types).start();
    let team = |name: &str| {
        let mut request = creates(1, &[name]);
        request.create_records[0].bucket.as_mut().unwrap().r#type = 100;
        request
    };
    let mut before = server("").unwrap();
    assert!(before.terminate().unwrap().success());
    let mut first = server(&teams("")).unwrap();
    let claims = first.claims(None).await.unwrap();
    commit(&claims, &begin(&claims, team("Alice")).await.unwrap()).await.unwrap();
    drop(claims);
    assert!(first.terminate().unwrap().success());

    let served =
        "error: bucket type 100 (`TEAMS`) has been served with form `word` and `fold_case` false, and is configured";
    for (changed, said) in [
        ("fold_case = true", "with form `word` and `fold_case` true: "),
        ("form = \"line\"", "with form `line` and `fold_case` false: "),
    ] {
        let error = server(&teams(changed)).unwrap_err().to_string();
        assert!(error.contains(&format!("{served} {said}")) && error.contains("keep the rule"), "{error}");
    }
    let warning = "bucket type 100 has been served and is not configured: its claims can't be reached";
    let mut without = server("").unwrap();
    let banner = await_banner(&without).await;
    assert!(banner.contains(&format!("  warning   {warning}")), "{banner}");
    assert!(without.terminate().unwrap().success());
    assert!(without.has_logged(warning), "{}", without.stderr());
    // The store remembers the rule of a bucket type while the configuration does not contain the
    // type.
    assert!(server(&teams("fold_case = true")).unwrap_err().to_string().contains(served));
    let renamed = server(&teams("name = \"CREWS\"")).unwrap();
    let taken = begin(&renamed.claims(None).await.unwrap(), team("Alice")).await.unwrap_err();
    assert_eq!(taken.code(), tonic::Code::AlreadyExists);
}

/// A configuration may choose another form for a built-in type only until the store has a claim.
#[tokio::test(flavor = "multi_thread")]
async fn b12_a_built_in_type_can_take_more_spellings_for_one_name() {
    let choice = "\n[[bucket_types]]\nnumber = 17\nname = \"PAGES_DOMAINS\"\nform = \"domain\"\nfold_case = true\n";
    let domain = |name: &str| {
        let mut request = creates(1, &[name]);
        request.create_records[0].bucket.as_mut().unwrap().r#type = 17;
        request
    };
    let (chosen, plain) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let server = |data: &TempDir, types: &str| Server::builder().data(data.path()).config(types).start();
    for (data, types, code) in [(&chosen, choice, Some(tonic::Code::AlreadyExists)), (&plain, "", None)] {
        let mut server = server(data, types).unwrap();
        let claims = server.claims(None).await.unwrap();
        commit(&claims, &begin(&claims, domain("xn--bcher-kva.example")).await.unwrap()).await.unwrap();
        let again = begin(&claims, domain("Bücher.example.")).await;
        assert_eq!(again.err().map(|status| status.code()), code);
        drop(claims);
        assert!(server.terminate().unwrap().success());
    }
    for (data, types, configured) in [(&chosen, "", "word"), (&plain, choice, "domain")] {
        let error = server(data, types).unwrap_err().to_string();
        let said = format!("and is configured with form `{configured}` and `fold_case` true: ");
        assert!(error.contains("bucket type 17 (`PAGES_DOMAINS`)") && error.contains(&said), "{error}");
    }
    // The rule on confusable characters concerns new values only, so it may be switched on at any
    // time.
    let looking = choice.replace("\"domain\"", "\"word\"\nrefuse_confusables = true");
    let server = server(&plain, &looking).unwrap();
    let refused = begin(&server.claims(None).await.unwrap(), domain("p\u{430}ypal.example")).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().contains("the value looks like another one in ASCII"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_home_variable_counts_as_unset() {
    let directory = TempDir::new().unwrap();
    let mut command = command().unwrap();
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("HOME", "").env_remove("XDG_STATE_HOME");
    let server = command.current_dir(directory.path()).spawn().unwrap();
    let output = server.wait_with_output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), output).await.unwrap().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with("error: this user has no state folder: name the data directory with `--data DIR`"),
        "{stderr}"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_data_directory_is_private_and_an_existing_one_keeps_its_mode() {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = TempDir::new().unwrap();
    let (new, old) = (dir.path().join("a/b"), dir.path().join("old"));
    std::fs::DirBuilder::new().mode(0o755).create(&old).unwrap();
    for (data, expected) in [(&new, 0o700), (&old, 0o755)] {
        let _server = Server::builder().data(data).start().unwrap();
        assert_eq!(mode(data), expected);
        assert_eq!(mode(&data.join("fjall")), 0o700);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_data_does_not_start() {
    let server = Server::start().unwrap();
    let data = server.data().to_str().unwrap();
    let (output, stderr) = serve(&["--data", data]).await;
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(output.stdout.is_empty());
    assert!(stderr.starts_with("error: ") && stderr.contains(data) && stderr.contains("another"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let claims = server.claims(None).await.unwrap();
    let uuid = begin(&claims, creates(1, &["first-come"])).await.unwrap();
    commit(&claims, &uuid).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_stops_the_start() {
    let server = Server::start().unwrap();
    let data = TempDir::new().unwrap();
    let address = server.address().to_string();
    let output =
        leasehold(["serve", "--create", "--listen", &address, "--data", data.path().to_str().unwrap()]).await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(&format!("`{address}`")), "{stderr}");
    let hint = stderr.split("hint: ").nth(1).unwrap_or_default();
    assert!(hint.contains("another server runs there: stop it, or choose another address with `--listen`"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_configuration_stops_the_start_and_names_the_setting() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let file = directory.path().join("leasehold.toml");
    let cell = "[[cells]]\nid = 1\nname = \"a\"\naddress = \"b\"\n";
    for (text, named) in [
        ("colour = \"red\"".to_owned(), "`colour`"),
        ("[limits]\nqueued_beginnings = 3".to_owned(), "`queued_beginnings`"),
        ("[tls]\ncertificate = \"a\"\nkey = \"b\"\nclient_cas = \"c\"".to_owned(), "`client_cas`"),
        (format!("{cell}adress = \"c\""), "`adress`"),
        ("[traces]\nendpoint = \"collector:4317\"".to_owned(), "`traces.endpoint`, `collector:4317`, is not the URL"),
        ("[traces]\nendpoint = \"https://c:1\"".to_owned(), "`traces.ca` is needed for an `https` address"),
        ("[traces]\nendpoint = \"http://c:1\"\nsample_ratio = 2".to_owned(), "`traces.sample_ratio` is 2: give 0 to 1"),
        ("[limits]\nqueued_begins = -1".to_owned(), "`limits.queued_begins` is -1: give 1 to 1000000"),
        ("[limits]\nidle_seconds = 5000000000".to_owned(), "`limits.idle_seconds` is 5000000000: give 1 to 86400"),
        ("settled_retention_seconds = -1".to_owned(), "`settled_retention_seconds` is -1: give 1 to"),
        ("[log]\nformat = \"xml\"".to_owned(), "`xml`"),
        (format!("[log]\nfilter = \"[[\"\n{cell}"), "`[[`"),
        (format!("[log]\nfilter = \"verbose\"\n{cell}"), "`verbose` is not a level"),
        (format!("[log]\nfilter = \"info,audit\"\n{cell}"), "`audit` is not a level"),
        (format!("[log]\nfilter = \"\"\n{cell}"), "it is empty"),
        ("[audit]\npath = \"a\"".to_owned(), "`path`"),
        (format!("[audit]\nfile = \"/nowhere/a\"\n{cell}"), "the audit file `/nowhere/a` can't be opened"),
        ("min_free_disk_mib = 1".to_owned(), "no `[[cells]]`"),
        (format!("{cell}{}", teams("number = 14")), "bucket type number 14 is built in or used twice"),
        (format!("{cell}{}", teams("fold_cases = true")), "`fold_cases`"),
        ("listen = \"localhost\"".to_owned(), "listen"),
        ("[limits]\nheld_claims = 0".to_owned(), "`limits.held_claims`"),
        ("[tls]\ncertificate = \"a\"\nkey = \"b\"".to_owned(), "`client_ca`"),
        ("metrics_listen = \"127.0.0.1:0\"\nsettled_retention_seconds = 0".to_owned(), "`settled_retention_seconds`"),
        (format!("{cell}{cell}"), "cell id 1"),
        (format!("{cell}{}", cell.replace("id = 1", "id = 2")), "cells 1 and 2"),
        ("[[cells]]\nid = 0\nname = \"a\"\naddress = \"b\"".to_owned(), "cell id 0"),
        ("not toml".to_owned(), "line 1"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let (output, stderr) = serve(&["--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()]).await;
        assert_eq!(output.status.code(), Some(2), "{text}: {stderr}");
        assert!(output.stdout.is_empty(), "{text}");
        assert!(stderr.starts_with("error: ") && stderr.contains(named), "{text}: {stderr}");
        assert!(!data.exists(), "{text}: data were made");
    }
    let (output, stderr) = serve(&["--config", "/nowhere/leasehold.toml"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("`/nowhere/leasehold.toml`"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_override_the_environment_and_the_environment_overrides_the_file() {
    let scratch = TempDir::new().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let config = format!("data = {:?}\n[log]\nformat = \"json\"\n", path("file"));
    let server = Server::builder().config(&config).env("LEASEHOLD_DATA", path("environment")).data(path("flag"));
    let server = server.env("LEASEHOLD_LOG_FORMAT", "text").start().unwrap();
    begin(&server.claims(None).await.unwrap(), creates(1, &["a"])).await.unwrap();
    assert!(path("flag").exists() && !path("environment").exists() && !path("file").exists());
    let logged = eventually("the audit", async || Some(server.stderr()).filter(|log| log.contains("lease begun")));
    assert!(!logged.await.unwrap().starts_with('{'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_to_start_is_a_line_of_a_json_log() {
    let directory = TempDir::new().unwrap();
    let (none, file) = (directory.path().join("none"), directory.path().join("leasehold.toml"));
    let (none, file) = (none.to_str().unwrap(), file.to_str().unwrap());
    std::fs::write(file, "[log]\nformat = \"json\"\n").unwrap();
    let server = Server::start().unwrap();
    let address = server.address().to_string();
    let (said, in_use) = ("there is no store in ", "can't listen on ");
    for (arguments, code, said, has_hint) in [
        (&["--log-format", "json", "--data", none][..], 2, said, false),
        (&["--config", file], 2, "the configuration has no `[[cells]]`", false),
        (&["--log-format", "json", "--config", "/nowhere"], 2, "the configuration file `/nowhere`", false),
        (&["--log-format", "json", "--create", "--data", none, "--listen", &address], 1, in_use, true),
    ] {
        let output = leasehold([&["serve"], arguments].concat()).await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        let lines: Vec<serde_json::Value> = stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let error = lines.last().unwrap();
        assert_eq!((&error["level"], &error["exit_code"]), (&"ERROR".into(), &code.into()), "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(said), "{error}");
        assert_eq!(error["hint"].is_string(), has_hint, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_pipe_that_nobody_reads_is_refused() {
    let directory = TempDir::new().unwrap();
    let [pipe, config, data] =
        ["pipe", "config", "data"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    nix::unistd::mkfifo(pipe.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::write(&config, format!("[audit]\nfile = {pipe:?}\n{DEVELOPMENT_CELLS}")).unwrap();
    let arguments = ["--config", &config, "--data", &data, "--create"];
    let (output, stderr) = serve(&arguments).await;
    assert!(!output.status.success() && stderr.contains("a pipe or device that nobody reads"), "{stderr}");
}

/// A file that can't be read is a problem of the configuration, told before the banner.
#[tokio::test(flavor = "multi_thread")]
async fn an_authority_of_the_collector_that_is_a_pipe_is_refused() {
    let directory = TempDir::new().unwrap();
    let [pipe, config, data] =
        ["pipe", "config", "data"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    nix::unistd::mkfifo(pipe.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let traces = format!("[traces]\nendpoint = \"https://collector.test\"\nca = {pipe:?}\n");
    std::fs::write(&config, format!("{traces}{DEVELOPMENT_CELLS}")).unwrap();
    let (output, stderr) = serve(&["--config", &config, "--data", &data, "--create"]).await;
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty() && !std::fs::exists(&data).unwrap());
    assert!(stderr.contains(&format!("`traces.ca`: `{pipe}` can't be read")), "{stderr}");
    let doctor = leasehold(["doctor", "--config", &config, "--data", &data]).await.unwrap();
    let found = String::from_utf8_lossy(&doctor.stdout);
    assert!(!doctor.status.success() && found.contains("`traces.ca`"), "{found}");
}
