//! The banner: the lines that `leasehold serve` prints at its start. They name the addresses, the
//! store, warnings, and a command to try.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::{Config, RelayConfig};

/// The values from which the banner is made.
pub(super) struct Banner<'a> {
    pub(super) config: &'a Config,
    /// The data directory or the database, as text for people.
    pub(super) location: String,
    /// The identity and contents of the store, as text for people.
    pub(super) store: String,
    /// The address that serves gRPC, with the port that was picked if the configured port is 0.
    pub(super) address: SocketAddr,
    /// The address of the metrics, if they have an address of their own.
    pub(super) metrics: Option<SocketAddr>,
    /// The hosts that the server's certificate names; empty without TLS.
    pub(super) certificate_hosts: Vec<String>,
    pub(super) warnings: Vec<String>,
}

impl Banner<'_> {
    /// The lines of the banner, in the order in which they are printed.
    pub(super) fn lines(&self) -> Vec<String> {
        let cells: Vec<_> = self.config.cells.iter().map(|cell| format!("{} ({})", cell.id, cell.name)).collect();
        let mut lines = vec![
            format!("leasehold {} listening on {}", env!("CARGO_PKG_VERSION"), self.address),
            format!("  data in   {}", self.location),
            format!("  store     {}", self.store),
            format!("  cells     {}", cells.join(", ")),
            format!("  metrics   {}", self.metrics()),
        ];
        lines.extend(self.relays());
        lines.extend(self.page().map(|page| format!("  page      {page}")));
        lines.extend(self.warnings.iter().map(|warning| format!("  warning   {warning}")));
        lines.push(self.command_to_try());
        lines
    }

    /// The line of the relays; `None` if there is none.
    fn relays(&self) -> Option<String> {
        let relay = |relay: &RelayConfig| format!("{} ({})", relay.name, relay.database().shown_url());
        let relays: Vec<_> = self.config.relays.iter().map(relay).collect();
        (!relays.is_empty()).then(|| format!("  relays    {}", relays.join(", ")))
    }

    fn metrics(&self) -> String {
        match self.plain_http() {
            Some(web) => format!("http://{web}/metrics"),
            None => "off: pass `--metrics-listen` to serve them".into(),
        }
    }

    /// The URL of the page; `None` if the server was built without it, or serves no plain HTTP.
    fn page(&self) -> Option<String> {
        let web = self.plain_http().filter(|_| cfg!(feature = "page"));
        web.map(|web| format!("http://{web}/"))
    }

    /// The address that serves plain HTTP; `None` if there is only the main address and it has TLS.
    fn plain_http(&self) -> Option<SocketAddr> {
        self.metrics.or_else(|| self.config.tls.is_none().then_some(self.address)).map(reachable)
    }

    /// A shell command that begins an update on this server.
    fn command_to_try(&self) -> String {
        let (scheme, files) = match self.config.tls {
            Some(_) => ("https", " --ca CA.pem --cert CELL.pem --key CELL.key"),
            None => ("http", ""),
        };
        let host = self.host();
        let cell = self.config.cells.first().map_or(1, |cell| cell.id);
        format!(
            "try: leasehold begin --server {scheme}://{host}{files} --cell {cell} --create USERNAMES:alice --subject USER:7 --source USERS:7"
        )
    }

    /// The host and port to which a client on this machine can connect. Under TLS the certificate
    /// must name the host: `localhost` or the listening address if possible, otherwise its first
    /// host.
    fn host(&self) -> String {
        let reachable = reachable(self.address);
        let hosts = &self.certificate_hosts;
        let is_own = |host: &&String| **host == "localhost" && reachable.ip().is_loopback();
        let is_address = |host: &&String| host.trim_matches(['[', ']']) == reachable.ip().to_string();
        let found = hosts.iter().find(is_own).or_else(|| hosts.iter().find(is_address)).or_else(|| hosts.first());
        found.map_or_else(|| reachable.to_string(), |host| format!("{host}:{}", reachable.port()))
    }
}

/// Returns the address to which a client on this machine can connect: loopback if the server
/// listens on all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn server(tls: bool, address: &str, certificate_hosts: &[&str]) -> String {
        let tls = if tls { "[tls]\ncertificate = \"a\"\nkey = \"b\"\nclient_ca = \"c\"" } else { "" };
        let config = toml::from_str::<Config>(&format!("insecure_plaintext = true\n{tls}")).unwrap();
        let config = Config { cells: Config::development().cells, ..config }.checked().unwrap();
        let banner = Banner {
            config: &config,
            location: "/data".into(),
            store: String::new(),
            address: address.parse().unwrap(),
            metrics: None,
            certificate_hosts: certificate_hosts.iter().map(|host| (*host).to_owned()).collect(),
            warnings: Vec::new(),
        };
        let line = banner.lines().pop().unwrap();
        line.strip_prefix("try: leasehold begin --server ").unwrap().split(" --cell ").next().unwrap().to_owned()
    }

    #[test]
    fn the_command_to_try_names_a_host_that_clients_can_use() {
        assert_eq!(server(false, "127.0.0.1:7171", &[]), "http://127.0.0.1:7171");
        assert_eq!(server(false, "0.0.0.0:7171", &[]), "http://127.0.0.1:7171");
        assert_eq!(server(false, "[::]:7171", &[]), "http://[::1]:7171");
        assert_eq!(server(false, "192.0.2.1:7171", &[]), "http://192.0.2.1:7171");
        let files = "--ca CA.pem --cert CELL.pem --key CELL.key";
        for (address, hosts, host) in [
            ("0.0.0.0:1", &["claims.example", "localhost"][..], "localhost:1"),
            ("127.0.0.1:1", &["claims.example", "127.0.0.1"], "127.0.0.1:1"),
            ("192.0.2.1:1", &["localhost", "192.0.2.1"], "192.0.2.1:1"),
            ("192.0.2.1:1", &["claims.example", "localhost"], "claims.example:1"),
            ("[::]:1", &["[::1]"], "[::1]:1"),
            ("[::]:1", &[], "[::1]:1"),
        ] {
            assert_eq!(server(true, address, hosts), format!("https://{host} {files}"), "{address} {hosts:?}");
        }
    }
}
