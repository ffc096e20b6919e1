//! The probes for a supervisor, in plain HTTP: `/livez` shows that the process answers, `/readyz`
//! that it can serve claims. They exist because Kubernetes' own gRPC probe does not support TLS.
//!
//! The health service of gRPC publishes the result of the same checks.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, Uri, header};
use tokio::sync::watch;

use crate::grpc::Services;

/// A condition that a server must meet to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check {
    name: &'static str,
    /// The reason why the condition is not met; `None` if the condition is met.
    problem: Option<&'static str>,
    /// A remark for the operator on a condition that is met.
    note: Option<&'static str>,
}

impl Check {
    fn new(name: &'static str, passes: bool, problem: &'static str) -> Self {
        Self { name, problem: (!passes).then_some(problem), note: None }
    }

    fn with_note(self, applies: bool, note: &'static str) -> Self {
        Self { note: applies.then_some(note).or(self.note), ..self }
    }

    /// True if the condition is met.
    pub(super) fn passes(self) -> bool {
        self.problem.is_none()
    }
}

/// The checks of the store. If all of them pass, the health status of `ClaimService` is `SERVING`.
pub(super) fn store_checks(services: &Services) -> [Check; 5] {
    let (metrics, committer) = (&services.metrics, services.committer());
    let database = Check::new(
        "database",
        !metrics.is_database_away(),
        "it does not answer, or its COMMITs wait for a standby: see the log",
    );
    [
        Check::new("store", !committer.has_failed(), "it has failed: see the log, fix the cause, restart the server"),
        Check::new("reads", services.failed_reads.is_empty(), "one has failed, and is tried again: see the log"),
        Check::new("writes", !committer.is_away(), "the last group of commands could not be saved: see the log"),
        database
            .with_note(metrics.database_lacks_standby(), "its commits wait for no standby: a failover would lose some")
            .with_note(metrics.database_lacks_changes(), "it lacks changes of an earlier epoch: verify every cell"),
        Check::new("maintenance", !metrics.is_maintenance_failing(), "the database refuses it: see the log"),
    ]
}

/// Returns the routes `/livez` and `/readyz`.
pub(super) fn router(services: Arc<Services>, stopping: watch::Receiver<bool>) -> Router {
    let live = async |uri: Uri| answer("livez", &[Check::new("ping", true, "")], &uri);
    let ready = move |uri: Uri| {
        let running = Check::new("shutdown", !*stopping.borrow(), "the server is stopping");
        let checks: Vec<_> = [running].into_iter().chain(store_checks(&services)).collect();
        std::future::ready(answer("readyz", &checks, &uri))
    };
    Router::new().route("/livez", get(live)).route("/readyz", get(ready))
}

/// The response in the form of Kubernetes' own probes: `ok` alone, or a line for each check if one
/// fails or the caller asks with `?verbose`.
fn answer(probe: &str, checks: &[Check], uri: &Uri) -> Response {
    let passes = checks.iter().all(|check| check.passes());
    let status = if passes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = if passes && !is_verbose(uri) { "ok\n".to_owned() } else { lines(probe, checks, passes) };
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, text).into_response()
}

fn lines(probe: &str, checks: &[Check], passes: bool) -> String {
    let line = |check: &Check| match check.problem {
        None => format!("[+]{} ok{}\n", check.name, check.note.map(|note| format!(", but {note}")).unwrap_or_default()),
        Some(problem) => format!("[-]{} failed: {problem}\n", check.name),
    };
    let result = if passes { "passed" } else { "failed" };
    checks.iter().map(line).collect::<String>() + &format!("{probe} check {result}\n")
}

fn is_verbose(uri: &Uri) -> bool {
    let name = |parameter: &str| parameter.split_once('=').map_or(parameter, |(name, _)| name) == "verbose";
    uri.query().is_some_and(|query| query.split('&').any(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_has_a_line_with_its_reason() {
        let noted = Check::new("writes", true, "a").with_note(true, "see the log");
        let checks = [Check::new("store", true, "a"), noted, Check::new("database", false, "it does not answer")];
        assert_eq!(
            lines("readyz", &checks, false),
            "[+]store ok\n[+]writes ok, but see the log\n[-]database failed: it does not answer\nreadyz check failed\n"
        );
    }

    #[test]
    fn a_query_may_ask_for_every_check() {
        for (path, verbose) in [
            ("/readyz", false),
            ("/readyz?verbose", true),
            ("/readyz?verbose=1", true),
            ("/readyz?timeout=1&verbose", true),
            ("/readyz?verbosely", false),
        ] {
            assert_eq!(is_verbose(&Uri::from_static(path)), verbose, "{path}");
        }
    }
}
