//! The host names that plain HTTP accepts, as a guard against DNS rebinding.
//!
//! The owner of a web page can make the page's host name resolve to this server's address (DNS
//! rebinding). The browser then lets the page read the server's answers, but sends the page's host
//! name as `Host`. An IP address or `localhost` as `Host` can't come from such a page.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};

/// The names under which a listener serves HTTP.
struct HttpHosts {
    names: Vec<String>,
    /// True if every name is allowed.
    allows_all: bool,
}

/// Makes a router refuse requests under a host name that is not allowed, and requests from pages of
/// another origin. IP addresses, `localhost` and `names` are allowed. If `names` is empty and the
/// listener is beyond loopback, every name is allowed.
pub(super) fn guard(router: Router, listener: IpAddr, names: &[String]) -> Router {
    let hosts = HttpHosts { names: names.to_vec(), allows_all: names.is_empty() && !listener.is_loopback() };
    router.layer(from_fn_with_state(Arc::new(hosts), check))
}

async fn check(State(hosts): State<Arc<HttpHosts>>, request: Request, next: Next) -> Response {
    match hosts.problem(request.uri(), request.headers()) {
        None => next.run(request).await,
        Some(problem) => (StatusCode::FORBIDDEN, format!("{problem}\n")).into_response(),
    }
}

impl HttpHosts {
    /// The reason why a request is refused; `None` if it is allowed.
    fn problem(&self, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name| headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap_or_default());
        // HTTP/2 has the host in the URI, HTTP/1.1 in a header. Only HTTP/1.0 may have none, and no
        // browser speaks it.
        let host = uri.authority().map(Authority::as_str).or_else(|| text(HOST))?;
        let Ok(authority) = host.parse::<Authority>() else { return Some("the host is malformed") };
        if !self.allows(authority.host()) {
            return Some("the server does not serve this host name: use its address, or add the name to `http_hosts`");
        }
        let is_foreign =
            |origin: &str| origin.split_once("://").is_none_or(|(_, from)| !from.eq_ignore_ascii_case(host));
        text(ORIGIN).is_some_and(is_foreign).then_some("the request comes from a page of another origin")
    }

    fn allows(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let is_address = host.parse::<IpAddr>().is_ok() || address.parse::<Ipv6Addr>().is_ok();
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        // Names below `localhost` never leave the machine (RFC 6761, 6.3).
        let is_local = name == "localhost" || name.ends_with(".localhost");
        self.allows_all
            || is_address
            || is_local
            || self.names.iter().any(|allowed| allowed.eq_ignore_ascii_case(&name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn is_allowed(hosts: &HttpHosts, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        headers.extend(origin.map(|origin| (ORIGIN, origin.parse().unwrap())));
        hosts.problem(&Uri::from_static("/metrics"), &headers).is_none()
    }

    #[test]
    fn only_own_names_and_own_pages_are_allowed() {
        let hosts = HttpHosts { names: vec!["claims.example".into()], allows_all: false };
        for host in ["127.0.0.1:7171", "[::1]:7171", "localhost", "LOCALHOST:1", "a.localhost", "Claims.example:80"] {
            assert!(is_allowed(&hosts, host, None), "{host}");
            assert!(is_allowed(&hosts, host, Some(&format!("http://{host}"))), "{host}");
            for origin in ["null", "http://evil.example", &format!("http://{host}1")] {
                assert!(!is_allowed(&hosts, host, Some(origin)), "{host} {origin}");
            }
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7171", ""] {
            assert!(!is_allowed(&hosts, host, None), "{host}");
        }
        let any = HttpHosts { names: Vec::new(), allows_all: true };
        assert!(is_allowed(&any, "metrics.internal:9090", None));
        assert!(!is_allowed(&any, "metrics.internal:9090", Some("http://evil.example")));
    }
}
