//! What `leasehold serve` says at its start: where it listens, what it has, and a command to try.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use leasehold_core::bucket::BucketType;
use leasehold_core::claim::CellId;

use crate::config::Config;

/// What there is to say.
pub(crate) struct Banner<'a> {
    pub(crate) config: &'a Config,
    /// Where the data lies.
    pub(crate) place: String,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    /// The hosts that the server's certificate is for.
    pub(crate) certificate_hosts: Vec<String>,
    /// What should not be as it is.
    pub(crate) warnings: Vec<String>,
}

impl Banner<'_> {
    pub(crate) fn lines(&self) -> Vec<String> {
        let cells: Vec<_> = self.config.cells.iter().map(|cell| format!("{} ({})", cell.id, cell.name)).collect();
        let mut lines = vec![
            format!("leasehold {} listening on {}", env!("CARGO_PKG_VERSION"), self.address),
            format!("  data in   {}", self.place),
            format!("  cells     {}", cells.join(", ")),
            format!("  metrics   {}", self.metrics()),
        ];
        lines.extend(self.page().map(|page| format!("  page      {page}")));
        lines.extend(self.warnings.iter().map(|warning| format!("  warning   {warning}")));
        lines.push(self.to_try());
        lines
    }

    fn metrics(&self) -> String {
        match self.web() {
            Some(web) => format!("http://{web}/metrics"),
            None => "off: give `--metrics-listen`".into(),
        }
    }

    /// Where the page is, in a server that has one.
    fn page(&self) -> Option<String> {
        let web = self.web().filter(|_| cfg!(feature = "page"));
        web.map(|web| format!("http://{web}/"))
    }

    /// Where plain HTTP is served.
    fn web(&self) -> Option<SocketAddr> {
        self.metrics.or_else(|| self.config.tls.is_none().then_some(self.address)).map(reachable)
    }

    fn to_try(&self) -> String {
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

    /// Host and port; under TLS a host that the certificate is for, this machine rather than another.
    fn host(&self) -> String {
        let reachable = reachable(self.address);
        let hosts = &self.certificate_hosts;
        let is_own = |host: &&String| **host == "localhost" && reachable.ip().is_loopback();
        let is_address = |host: &&String| host.trim_matches(['[', ']']) == reachable.ip().to_string();
        let found = hosts.iter().find(is_own).or_else(|| hosts.iter().find(is_address)).or_else(|| hosts.first());
        found.map_or_else(|| reachable.to_string(), |host| format!("{host}:{}", reachable.port()))
    }
}

/// An address that can be connected to, from this machine: "all addresses" is none.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// What to say of cells that own claims and are not configured; nothing where there are none.
pub(crate) fn strangers(cells: &[CellId]) -> Option<String> {
    match cells {
        [] => None,
        [cell] => Some(format!(
            "cell {cell} owns claims but is not configured: its claims stay, its callers are refused; add it to `[[cells]]` for as long as it has any"
        )),
        cells => {
            let cells: Vec<_> = cells.iter().map(CellId::to_string).collect();
            let cells = cells.join(", ");
            Some(format!(
                "cells {cells} own claims but are not configured: their claims stay, their callers are refused; add them to `[[cells]]` for as long as they have any"
            ))
        }
    }
}

/// What to say of bucket types that claims were made under and that are not configured; nothing where there are none.
pub(crate) fn missing_types(types: &[BucketType]) -> Option<String> {
    match types {
        [] => None,
        [one] => Some(format!(
            "bucket type {one} has been served and is not configured: its claims can't be reached; add it to `[[bucket_types]]`"
        )),
        types => {
            let types: Vec<_> = types.iter().map(BucketType::to_string).collect();
            let types = types.join(", ");
            Some(format!(
                "bucket types {types} have been served and are not configured: their claims can't be reached; add them to `[[bucket_types]]`"
            ))
        }
    }
}

/// What to say of a role that may not vacuum.
pub(crate) fn without_vacuum(role: &str) -> String {
    format!(
        "the role {role} may not vacuum the table `claim_leases`, which it does not own: what settled leases leave \
         there slows lists down until autovacuum comes; say `ALTER TABLE claim_leases OWNER TO {role}`, which makes \
         whoever migrates later need to be a member of {role}"
    )
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
            place: "/data".into(),
            address: address.parse().unwrap(),
            metrics: None,
            certificate_hosts: certificate_hosts.iter().map(|host| (*host).to_owned()).collect(),
            warnings: Vec::new(),
        };
        let line = banner.lines().pop().unwrap();
        line.strip_prefix("try: leasehold begin --server ").unwrap().split(" --cell ").next().unwrap().to_owned()
    }

    #[test]
    fn the_command_to_try_can_be_run() {
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

    #[test]
    fn bucket_types_that_are_not_configured_are_named() {
        let types = |numbers: &[i32]| missing_types(&numbers.iter().copied().map(BucketType).collect::<Vec<_>>());
        assert_eq!(types(&[]), None);
        assert!(types(&[1000]).unwrap().starts_with("bucket type 1000 has been served and is not configured: its"));
        assert!(types(&[100, 1000]).unwrap().starts_with("bucket types 100, 1000 have been served and are not"));
    }

    #[test]
    fn cells_that_are_not_configured_are_named() {
        let cells = |ids: &[i64]| strangers(&ids.iter().copied().map(CellId).collect::<Vec<_>>());
        assert_eq!(cells(&[]), None);
        assert!(cells(&[3]).unwrap().starts_with("cell 3 owns claims but is not configured: its claims stay"));
        assert!(cells(&[3, 12]).unwrap().starts_with("cells 3, 12 own claims but are not configured: their claims"));
    }
}
