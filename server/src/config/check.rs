//! What the types of the configuration don't say: which values can't work, and what to write instead.

use std::collections::BTreeSet;

use http::Uri;
use leasehold_core::catalogue::{BucketRule, Catalogue};

use super::{CellConfig, Config, ConfigError, SequenceRange, Tls};

/// Checks everything.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn all(config: &Config) -> Result<(), ConfigError> {
    cells(&config.cells)?;
    bucket_types(&config.bucket_types)?;
    no_zeros(config)?;
    config.tls.as_ref().map_or(Ok(()), tls)?;
    addresses(config)
}

/// Checks each cell, and that no two of them lay claim to the same.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn cells(cells: &[CellConfig]) -> Result<(), ConfigError> {
    cells.iter().try_for_each(cell)?;
    each_pair(cells, |first, second| {
        if first.id == second.id {
            return Err(ConfigError::CellTwice(first.id));
        }
        if first.name == second.name {
            return Err(ConfigError::NameTwice { name: first.name.clone(), first: first.id, second: second.id });
        }
        session_prefixes(first, second).and_then(|()| sequence_ranges(first, second))
    })
}

fn cell(cell: &CellConfig) -> Result<(), ConfigError> {
    if cell.id < 1 {
        return Err(ConfigError::CellId(cell.id));
    }
    if cell.name.trim().is_empty() {
        return Err(ConfigError::EmptyName(cell.id));
    }
    if !is_address(&cell.address) {
        return Err(ConfigError::Address { cell: cell.id, address: cell.address.clone() });
    }
    match cell.sequence_range {
        Some(SequenceRange { minval, maxval }) if minval < 1 || minval > maxval => {
            Err(ConfigError::SequenceRange { cell: cell.id, minval, maxval })
        }
        _ => Ok(()),
    }
}

/// Routers are given either a whole URL or what they put in the place of a URL's host.
fn is_address(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    let known_scheme = uri.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    let host = authority.host();
    let port = authority.as_str().strip_prefix(host).filter(|_| !host.is_empty());
    let port_is_good = port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some_and(|port| port > 0));
    known_scheme && port_is_good
}

fn each_pair(
    cells: &[CellConfig],
    mut check: impl FnMut(&CellConfig, &CellConfig) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    let pairs = cells.iter().enumerate().flat_map(|(at, first)| cells.iter().skip(at + 1).map(move |b| (first, b)));
    for (first, second) in pairs {
        check(first, second)?;
    }
    Ok(())
}

fn session_prefixes(first: &CellConfig, second: &CellConfig) -> Result<(), ConfigError> {
    let by_length = |cell: &&CellConfig| cell.session_prefix.len();
    let (short, long) = if by_length(&first) <= by_length(&second) { (first, second) } else { (second, first) };
    if short.session_prefix.is_empty() || !long.session_prefix.starts_with(&short.session_prefix) {
        return Ok(());
    }
    Err(ConfigError::SessionPrefix {
        prefix: short.session_prefix.clone(),
        cell: short.id,
        longer: long.session_prefix.clone(),
        other: long.id,
    })
}

fn sequence_ranges(first: &CellConfig, second: &CellConfig) -> Result<(), ConfigError> {
    let (Some(one), Some(other)) = (first.sequence_range, second.sequence_range) else { return Ok(()) };
    let (from, to) = (one.minval.max(other.minval), one.maxval.min(other.maxval));
    if from > to {
        return Ok(());
    }
    Err(ConfigError::SequenceRanges { first: first.id, second: second.id, from, to })
}

/// Checks the bucket types beside the built-in ones.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn bucket_types(rules: &[BucketRule]) -> Result<(), ConfigError> {
    let mut known: BTreeSet<_> = Catalogue::default().rules().map(|rule| rule.number).collect();
    for rule in rules {
        if rule.number.0 < 1 {
            return Err(ConfigError::BucketType(rule.number.0));
        }
        if !known.insert(rule.number) {
            return Err(ConfigError::BucketTypeTwice(rule.number.0));
        }
    }
    Ok(())
}

/// None of these does anything but stop all work where it is 0.
fn no_zeros(config: &Config) -> Result<(), ConfigError> {
    let limits = config.limits;
    let values = [
        ("settled_retention_seconds", config.settled_retention_seconds),
        ("limits.queued_begins", limits.queued_begins as u64),
        ("limits.held_claims", limits.held_claims as u64),
        ("limits.concurrent_lists", limits.concurrent_lists as u64),
        ("limits.queued_lists", limits.queued_lists as u64),
        ("limits.streams_per_connection", limits.streams_per_connection.into()),
        ("tls.reload_interval_seconds", config.tls.as_ref().map_or(1, |tls| tls.reload_interval_seconds)),
    ];
    let zero = values.into_iter().find(|(_, value)| *value == 0);
    zero.map_or(Ok(()), |(name, _)| Err(ConfigError::Zero(name)))
}

fn tls(tls: &Tls) -> Result<(), ConfigError> {
    // The characters of a trust domain, by SPIFFE's own specification.
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    if tls.trust_domain.is_empty() || !tls.trust_domain.bytes().all(allowed) {
        return Err(ConfigError::TrustDomain(tls.trust_domain.clone()));
    }
    Ok(())
}

fn addresses(config: &Config) -> Result<(), ConfigError> {
    if config.tls.is_none() && !config.listen.ip().is_loopback() && !config.insecure_plaintext {
        return Err(ConfigError::Plaintext(config.listen));
    }
    // Port 0 is another free one each time.
    if config.metrics_listen == Some(config.listen) && config.listen.port() != 0 {
        return Err(ConfigError::MetricsListen(config.listen));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn checked(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        config.checked().map_err(|error| error.to_string())
    }

    /// Two cells, with these fields put in the place of good ones.
    fn cells(one: &str, two: &str) -> String {
        let cell = |id: i64, changed: &str| {
            let good = [
                ("id", format!("{id}")),
                ("name", format!("\"cell-{id}\"")),
                ("address", format!("\"https://cell-{id}.example.com\"")),
                ("session_prefix", format!("\"cell-{id}-\"")),
                ("sequence_range", format!("{{ minval = {id}001, maxval = {id}999 }}")),
            ];
            let changes = |name: &str| changed.lines().any(|line| line.split(" = ").next() == Some(name));
            let kept = good.iter().filter(|(name, _)| !changes(name));
            let kept: String = kept.map(|(name, value)| format!("{name} = {value}\n")).collect();
            format!("[[cells]]\n{kept}{changed}\n")
        };
        cell(1, one) + &cell(2, two)
    }

    #[test]
    fn cells_that_cannot_work_are_refused_by_name() {
        for (one, two, said) in [
            ("id = 0", "", "cell id 0 is not 1 or more"),
            ("", "id = 1", "cell id 1 is given twice"),
            ("name = \" \"", "", "cell 1 has an empty `name`"),
            ("", "name = \"cell-1\"", "cells 1 and 2 have one `name`, `cell-1`: rename one"),
            ("", "address = \"\"", "`address` of cell 2, ``,"),
            ("", "address = \"ftp://a.example\"", "`address` of cell 2, `ftp://a.example`,"),
            ("address = \"https://\"", "", "`address` of cell 1, `https://`,"),
            ("address = \"/cells/1\"", "", "`address` of cell 1"),
            ("address = \"a b\"", "", "`address` of cell 1"),
            ("address = \"https://a:x\"", "", "`address` of cell 1"),
            ("address = \"a:70000\"", "", "`address` of cell 1"),
            ("address = \"https://me@a\"", "", "`address` of cell 1"),
            ("", "session_prefix = \"cell-1-\"", "`session_prefix` of cell 1, `cell-1-`, begins that of cell 2"),
            ("", "session_prefix = \"cell\"", "`session_prefix` of cell 2, `cell`, begins that of cell 1, `cell-1-`"),
            ("sequence_range = { minval = 0, maxval = 9 }", "", "`sequence_range` of cell 1 goes from 0 to 9"),
            ("", "sequence_range = { minval = 9, maxval = 8 }", "`sequence_range` of cell 2 goes from 9 to 8"),
            ("", "sequence_range = { minval = 1999, maxval = 2999 }", "cells 1 and 2 overlap from 1999 to 1999"),
            ("sequence_range = { minval = 1, maxval = 9999 }", "", "cells 1 and 2 overlap from 2001 to 2999"),
        ] {
            let error = checked(&cells(one, two)).expect_err(&format!("{one} {two}"));
            assert!(error.contains(said), "{one} {two}: {error}");
        }
        for (one, two) in [
            ("", ""),
            ("session_prefix = \"\"", "session_prefix = \"\""),
            ("address = \"one.example\"", "address = \"http://[::1]:3000/path\""),
            ("address = \"127.0.0.1:3000\"", "address = \"https://two.example:443\""),
            ("sequence_range = { minval = 1, maxval = 2000 }", ""),
            ("sequence_range = { minval = 5, maxval = 5 }", ""),
        ] {
            assert_eq!(checked(&cells(one, two)).map(|config| config.cells.len()), Ok(2), "{one} {two}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let tls = "[tls]\ncertificate = \"a\"\nkey = \"b\"\n";
        let with_ca = |line: &str| format!("{tls}client_ca = \"c\"\n{line}");
        for (text, said) in [
            ("settled_retention_seconds = 0".to_owned(), "`settled_retention_seconds` is 0"),
            ("[limits]\nqueued_begins = 0".to_owned(), "`limits.queued_begins` is 0"),
            ("[limits]\nheld_claims = 0".to_owned(), "`limits.held_claims` is 0"),
            ("[limits]\nconcurrent_lists = 0".to_owned(), "`limits.concurrent_lists` is 0"),
            ("[limits]\nqueued_lists = 0".to_owned(), "`limits.queued_lists` is 0"),
            ("[limits]\nstreams_per_connection = 0".to_owned(), "`limits.streams_per_connection` is 0"),
            (with_ca("reload_interval_seconds = 0"), "`tls.reload_interval_seconds` is 0"),
            (with_ca("trust_domain = \"\""), "`tls.trust_domain`, ``,"),
            (with_ca("trust_domain = \"Example.org\""), "`tls.trust_domain`, `Example.org`,"),
            (with_ca("trust_domain = \"spiffe://a\""), "`tls.trust_domain`, `spiffe://a`,"),
            (tls.to_owned(), "missing field `client_ca`"),
            (
                "metrics_listen = \"127.0.0.1:7171\"".to_owned(),
                "`metrics_listen` and `listen` are both `127.0.0.1:7171`",
            ),
            ("listen = \"0.0.0.0:1\"".to_owned(), "`0.0.0.0:1` is not a loopback address"),
        ] {
            let error = checked(&text).expect_err(&text);
            assert!(error.contains(said), "{text}: {error}");
        }
        for text in [
            String::new(),
            with_ca("trust_domain = \"a-b_c.example.0\""),
            "min_free_disk_mib = 0".to_owned(),
            "listen = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"".to_owned(),
        ] {
            checked(&text).unwrap();
        }
    }

    #[test]
    fn b12_a_bucket_type_keeps_its_meaning() {
        let with_bucket_types = |numbers: &[i32]| {
            let rule = |number| {
                format!("[[bucket_types]]\nnumber = {number}\nname = \"X\"\nform = \"word\"\nfold_case = false\n")
            };
            let text: String = numbers.iter().map(rule).collect();
            toml::from_str::<Config>(&text).unwrap().checked()
        };
        assert_eq!(with_bucket_types(&[100, 101]).unwrap().bucket_types.len(), 2);
        assert!(matches!(with_bucket_types(&[0]), Err(ConfigError::BucketType(0))));
        assert!(matches!(with_bucket_types(&[4]), Err(ConfigError::BucketTypeTwice(4))));
        assert!(matches!(with_bucket_types(&[100, 100]), Err(ConfigError::BucketTypeTwice(100))));
    }
}
