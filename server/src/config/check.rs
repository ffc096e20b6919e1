//! Checks of the configuration that its types can't express. They find an invalid value before the
//! server opens its store or listens.

use std::num::NonZeroU32;

use http::Uri;
use leasehold_core::batch::MAX_REQUEST_BYTES;
use leasehold_core::catalogue::{BucketRule, Catalogue};
use leasehold_core::cell::CellId;

use super::relays;
use super::{
    CellConfig, Config, ConfigError, EtcdConfig, PostgresConfig, RelayConfig, SequenceRange, TlsConfig, TracesConfig,
};

/// Checks the whole configuration.
///
/// # Errors
/// The first problem found. An empty list of cells is reported last, so that an error with a more
/// precise message wins.
pub(super) fn all(config: &Config) -> Result<(), ConfigError> {
    cells(&config.cells)?;
    default_cell(config)?;
    bucket_types(&config.bucket_types)?;
    numbers(config)?;
    one_store(config)?;
    config.tls.as_ref().map_or(Ok(()), tls)?;
    addresses(config)?;
    subjects(config)?;
    audit(config)?;
    config.locks.check()?;
    claims_only(config)?;
    config.locks.check_peer_address(config.tls.is_some(), config.postgres.is_some())?;
    relays::check(&config.relays, config.tls.is_some())?;
    config.traces.as_ref().map_or(Ok(()), traces)?;
    if config.cells.is_empty() { Err(ConfigError::NoCells) } else { Ok(()) }
}

/// Checks each cell, then checks that no two cells share an id, name, session prefix or sequence
/// id.
///
/// # Errors
/// The first problem found in the cells.
pub(super) fn cells(cells: &[CellConfig]) -> Result<(), ConfigError> {
    cells.iter().try_for_each(cell)?;
    each_pair(cells, |first, second| {
        if first.id == second.id {
            return Err(ConfigError::DuplicateCellId(first.id));
        }
        if first.name == second.name {
            let (name, first, second) = (first.name.clone(), first.id, second.id);
            return Err(ConfigError::DuplicateCellName { name, first, second });
        }
        session_prefixes(first, second).and_then(|()| sequence_ranges(first, second))
    })
}

fn cell(cell: &CellConfig) -> Result<(), ConfigError> {
    if cell.id < 1 {
        return Err(ConfigError::CellId(cell.id));
    }
    if cell.name.trim().is_empty() {
        return Err(ConfigError::EmptyCellName(cell.id));
    }
    if !is_address(&cell.address) {
        return Err(ConfigError::CellAddress { cell: cell.id, field: "address", address: cell.address.clone() });
    }
    if let Some(address) = cell.pages_address.as_ref().filter(|address| !is_address(address)) {
        return Err(ConfigError::CellAddress { cell: cell.id, field: "pages_address", address: address.clone() });
    }
    own_ranges(cell)
}

/// Checks each range of ids of a cell, and that no two of them overlap.
fn own_ranges(cell: &CellConfig) -> Result<(), ConfigError> {
    if cell.sequence_range.is_some() && !cell.sequence_ranges.is_empty() {
        return Err(ConfigError::TwoSequenceRanges(cell.id));
    }
    let ranges = cell.ranges();
    let is_valid = |range: &SequenceRange| range.minval <= range.maxval && (range.minval >= 1 || range.has_every_id());
    if let Some(&SequenceRange { minval, maxval }) = ranges.iter().find(|range| !is_valid(range)) {
        return Err(ConfigError::SequenceRange { cell: cell.id, minval, maxval });
    }
    each_pair(&ranges, |one, other| match overlap(*one, *other) {
        None => Ok(()),
        Some((from, to)) => Err(ConfigError::OverlappingSequenceRanges { first: cell.id, second: cell.id, from, to }),
    })
}

fn default_cell(config: &Config) -> Result<(), ConfigError> {
    match config.default_cell {
        Some(id) if config.cells.iter().all(|cell| cell.id != id) => Err(ConfigError::DefaultCell(id)),
        _ => Ok(()),
    }
}

/// True if a client can use the address of a cell or a server: a complete `http` or `https` URL, or
/// `HOST:PORT`.
pub(super) fn is_address(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    let known_scheme = uri.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    let host = authority.host();
    // `http::uri::Authority` also accepts `USER@HOST`, whose text does not begin with the host, and
    // ports above 65535, which `port_u16` does not return.
    let port = authority.as_str().strip_prefix(host).filter(|_| !host.is_empty());
    let port_is_valid = port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some_and(|port| port > 0));
    known_scheme && port_is_valid
}

fn pairs<T>(items: &[T]) -> impl Iterator<Item = (&T, &T)> {
    items.iter().enumerate().flat_map(|(at, first)| items.iter().skip(at + 1).map(move |second| (first, second)))
}

fn each_pair<T>(items: &[T], mut check: impl FnMut(&T, &T) -> Result<(), ConfigError>) -> Result<(), ConfigError> {
    for (first, second) in pairs(items) {
        check(first, second)?;
    }
    Ok(())
}

/// Checks that the session prefix of neither cell is a prefix of the other cell's. An empty prefix
/// means that the cell has no session prefix.
fn session_prefixes(first: &CellConfig, second: &CellConfig) -> Result<(), ConfigError> {
    let is_shorter = first.session_prefix.len() <= second.session_prefix.len();
    let (short, long) = if is_shorter { (first, second) } else { (second, first) };
    if short.session_prefix.is_empty() || !long.session_prefix.starts_with(&short.session_prefix) {
        return Ok(());
    }
    Err(ConfigError::OverlappingSessionPrefixes {
        prefix: short.session_prefix.clone(),
        cell: short.id,
        longer: long.session_prefix.clone(),
        other: long.id,
    })
}

/// Checks that no database id is in ranges of both cells. A range with every id may overlap others:
/// the database of a deployment's first cell has assigned ids from the whole range.
fn sequence_ranges(first: &CellConfig, second: &CellConfig) -> Result<(), ConfigError> {
    let bounded = |cell: &CellConfig| cell.ranges().into_iter().filter(|range| !range.has_every_id());
    let pairs = bounded(first).flat_map(|one| bounded(second).map(move |other| (one, other)));
    match pairs.into_iter().find_map(|(one, other)| overlap(one, other)) {
        None => Ok(()),
        Some((from, to)) => {
            Err(ConfigError::OverlappingSequenceRanges { first: first.id, second: second.id, from, to })
        }
    }
}

/// Returns the first and the last id that are in both ranges; `None` if there is no such id.
fn overlap(one: SequenceRange, other: SequenceRange) -> Option<(i64, i64)> {
    let (from, to) = (one.minval.max(other.minval), one.maxval.min(other.maxval));
    (from <= to).then_some((from, to))
}

/// Returns the pairs of cells that have ids in common.
pub(super) fn overlapping_cells(cells: &[CellConfig]) -> Vec<(CellId, CellId)> {
    let has_overlap = |first: &CellConfig, second: &CellConfig| {
        let others = second.ranges();
        first.ranges().into_iter().any(|one| others.iter().any(|other| overlap(one, *other).is_some()))
    };
    let overlapping = pairs(cells).filter(|(first, second)| has_overlap(first, second));
    overlapping.map(|(first, second)| (CellId(first.id), CellId(second.id))).collect()
}

/// Checks the configured bucket types, against each other and against the built-in ones.
///
/// # Errors
/// The first problem found in the bucket types.
pub(super) fn bucket_types(rules: &[BucketRule]) -> Result<(), ConfigError> {
    let built_in = Catalogue::default();
    // A configured rule may refine a built-in type, under the same number and name
    // (`is_choice_of`). Such a built-in type is left out here, because it would count as a
    // duplicate.
    let mut known: Vec<_> =
        built_in.rules().filter(|known| !rules.iter().any(|rule| is_choice_of(known, rule))).cloned().collect();
    for rule in rules {
        bucket_type(rule)?;
        known.iter().try_for_each(|other| distinct_bucket_types(other, rule))?;
        known.push(rule.clone());
    }
    Ok(())
}

fn bucket_type(BucketRule { number, name, .. }: &BucketRule) -> Result<(), ConfigError> {
    if number.0 < 1 {
        return Err(ConfigError::BucketTypeNumber(number.0));
    }
    // On the command line a bucket is written as `TYPE:VALUE`, where TYPE is the name or the number
    // of the bucket type.
    let is_a_name = name.chars().all(|c| c != ':' && !c.is_whitespace()) && !name.bytes().all(|c| c.is_ascii_digit());
    if is_a_name { Ok(()) } else { Err(ConfigError::BucketTypeName { number: number.0, name: name.to_string() }) }
}

/// True if `rule` is the built-in rule `known` with at least one of two changes. Its form may treat
/// more spellings as the same name, or it may refuse new values that look like others
/// (`refuse_confusables`).
fn is_choice_of(known: &BucketRule, rule: &BucketRule) -> bool {
    let is_same_type = (known.number, &known.name, known.fold_case) == (rule.number, &rule.name, rule.fold_case);
    let is_choice = known.form != rule.form || rule.refuse_confusables;
    is_same_type && is_choice && known.form == rule.form.base_form()
}

fn distinct_bucket_types(one: &BucketRule, other: &BucketRule) -> Result<(), ConfigError> {
    if one.number == other.number {
        return Err(ConfigError::DuplicateBucketTypeNumber(one.number.0));
    }
    if one.name.eq_ignore_ascii_case(&other.name) {
        let (name, first, second) = (other.name.to_string(), one.number.0, other.number.0);
        return Err(ConfigError::DuplicateBucketTypeName { name, first, second });
    }
    Ok(())
}

/// One day in seconds: the largest value of most time settings. A larger number is taken for a
/// mistake.
const DAY: u64 = 24 * 60 * 60;

/// A numeric setting: its name, its value, and the largest value that works.
type Number = (&'static str, u64, u64);

/// Checks the numeric settings. The server can't work if one of them is 0. Very large ones overflow
/// a semaphore, a timer or a queue.
///
/// # Errors
/// The first number that is out of range.
fn numbers(config: &Config) -> Result<(), ConfigError> {
    in_range(&server_numbers(config))?;
    config.relays.iter().try_for_each(|relay| in_range(&relay_numbers(relay)))?;
    config.etcd.as_ref().map_or(Ok(()), etcd)?;
    config.postgres.as_ref().map_or(Ok(()), postgres)
}

fn server_numbers(config: &Config) -> [Number; 23] {
    let limits = config.limits;
    [
        ("settled_retention_seconds", config.settled_retention_seconds, 36_500 * DAY),
        ("limits.queued_begins", limits.queued_begins as u64, 1_000_000),
        ("limits.held_claims", limits.held_claims as u64, 1_000_000_000),
        ("limits.cell_begins_per_second", limits.cell_begins_per_second.map_or(1, NonZeroU32::get).into(), 1_000_000),
        ("limits.cell_held_claims", limits.cell_held_claims.map_or(1, NonZeroU32::get).into(), 1_000_000_000),
        ("limits.user_data_bytes", limits.user_data_bytes as u64, MAX_REQUEST_BYTES as u64),
        ("limits.concurrent_lists", limits.concurrent_lists as u64, 1_000_000),
        ("limits.queued_lists", limits.queued_lists as u64, 1_000_000),
        ("limits.sessions", limits.sessions as u64, 10_000_000),
        ("limits.sessions_per_service", limits.sessions_per_service as u64, 10_000_000),
        ("limits.connections", limits.connections as u64, 1_000_000),
        ("limits.connection_age_seconds", limits.connection_age_seconds.into(), DAY),
        ("limits.body_seconds", limits.body_seconds.into(), DAY),
        ("limits.request_mib", limits.request_mib as u64, 1_000_000),
        ("limits.request_mib_per_connection", limits.request_mib_per_connection as u64, 1_000_000),
        ("limits.answer_mib", limits.answer_mib as u64, 1_000_000),
        ("limits.answer_mib_per_connection", limits.answer_mib_per_connection as u64, 1_000_000),
        ("limits.answer_seconds", limits.answer_seconds.into(), DAY),
        ("limits.streams_per_connection", limits.streams_per_connection.into(), 1_000_000),
        ("limits.idle_seconds", limits.idle_seconds.into(), DAY),
        ("audit.max_mib", config.audit.max_mib.unwrap_or(1), 1_000_000),
        ("audit.kept_files", config.audit.kept_files as u64, 1_000),
        ("tls.reload_interval_seconds", config.tls.as_ref().map_or(1, |tls| tls.reload_interval_seconds), DAY),
    ]
}

/// Checks the numeric settings of `[postgres]`.
///
/// # Errors
/// The first number that is out of range.
pub(super) fn postgres(postgres: &PostgresConfig) -> Result<(), ConfigError> {
    in_range(&postgres_numbers(postgres))
}

/// Checks the settings of `[etcd]`.
///
/// # Errors
/// The URL can't be read, or a number is out of range.
fn etcd(etcd: &EtcdConfig) -> Result<(), ConfigError> {
    let place = etcd.place().map_err(ConfigError::EtcdUrl)?;
    etcd.is_encrypted(&place).map_err(ConfigError::EtcdTls)?;
    in_range(&etcd_numbers(etcd))
}

fn etcd_numbers(etcd: &EtcdConfig) -> [Number; 2] {
    [("etcd.quota_mib", etcd.quota_mib, 1_000_000), ("etcd.patience_seconds", etcd.patience_seconds, DAY)]
}

/// Checks that a server on etcd has no work that needs queues.
fn claims_only(config: &Config) -> Result<(), ConfigError> {
    match config.etcd.is_some() && !config.relays.is_empty() {
        true => Err(ConfigError::RelaysOnEtcd),
        false => Ok(()),
    }
}

fn relay_numbers(relay: &RelayConfig) -> [Number; 2] {
    [
        ("relays.connect_timeout_seconds", relay.connect_timeout_seconds, DAY),
        ("relays.statement_timeout_seconds", relay.statement_timeout_seconds, DAY),
    ]
}

fn postgres_numbers(postgres: &PostgresConfig) -> [Number; 6] {
    [
        // Each write connection has a thread of its own, and a few dozen already keep any database
        // busy.
        ("postgres.write_connections", postgres.write_connections as u64, 64),
        ("postgres.read_connections", postgres.read_connections as u64, 1_000),
        ("postgres.connect_timeout_seconds", postgres.connect_timeout_seconds, DAY),
        ("postgres.statement_timeout_seconds", postgres.statement_timeout_seconds, DAY),
        ("postgres.patience_seconds", postgres.patience_seconds, DAY),
        ("postgres.migration_wait_seconds", postgres.migration_wait_seconds, DAY),
    ]
}

/// Returns an error for a number in the text of an invalid configuration file that its field's type
/// can't represent, such as -1 in a `usize`; `None` if there is none.
///
/// The TOML library's own message names the type and not the allowed range, so the text is parsed
/// once more without types.
pub(super) fn number_out_of_range(text: &str) -> Option<ConfigError> {
    let file: toml::Table = text.parse().ok()?;
    let number = |name: &str| match name.split_once('.') {
        Some((table, key)) => file.get(table)?.get(key)?.as_integer(),
        None => file.get(name)?.as_integer(),
    };
    let numbers = server_numbers(&Config::default()).into_iter().chain(postgres_numbers(&PostgresConfig::at("")));
    let numbers = numbers.chain(etcd_numbers(&EtcdConfig::at("")));
    let mut written = numbers.filter_map(|(name, _, max)| Some((name, i128::from(number(name)?), max)));
    let (name, value, max) = written.find(|(_, value, max)| !(1..=i128::from(*max)).contains(value))?;
    Some(ConfigError::OutOfRange { name, value, max })
}

/// Checks that each numeric setting is between 1 and its maximum.
fn in_range(numbers: &[Number]) -> Result<(), ConfigError> {
    let wrong = numbers.iter().find(|(_, value, max)| !(1..=*max).contains(value));
    wrong.map_or(Ok(()), |&(name, value, max)| Err(ConfigError::OutOfRange { name, value: value.into(), max }))
}

fn tls(tls: &TlsConfig) -> Result<(), ConfigError> {
    // SPIFFE-ID, section 2.1: a trust domain has lower-case letters, digits, dots, dashes and
    // underscores.
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    if tls.trust_domain.is_empty() || !tls.trust_domain.bytes().all(allowed) {
        return Err(ConfigError::TrustDomain(tls.trust_domain.clone()));
    }
    Ok(())
}

fn traces(traces: &TracesConfig) -> Result<(), ConfigError> {
    let scheme = traces.endpoint.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
    let has_tls = match scheme.as_ref().and_then(Uri::scheme_str) {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(ConfigError::TracesEndpoint(traces.endpoint.clone())),
    };
    if has_tls != traces.ca.is_some() {
        return Err(ConfigError::TracesAuthority);
    }
    if !(0.0..=1.0).contains(&traces.sample_ratio) {
        return Err(ConfigError::SampleRatio(traces.sample_ratio));
    }
    Ok(())
}

fn subjects(config: &Config) -> Result<(), ConfigError> {
    if !config.subjects.has_valid_pattern() {
        return Err(ConfigError::SubjectPattern(config.subjects.cell.clone().unwrap_or_default()));
    }
    if let Some((name, fault)) = config.subjects.fault() {
        return Err(ConfigError::SubjectName { name: name.to_owned(), fault });
    }
    // This setting trusts the header of every caller in plain text. A caller from another machine
    // must not be able to set the header.
    if config.subjects.loopback_balancer && (config.tls.is_some() || !config.listen.ip().is_loopback()) {
        return Err(ConfigError::LoopbackBalancer(config.listen));
    }
    Ok(())
}

fn audit(config: &Config) -> Result<(), ConfigError> {
    // `audit.max_mib` without a file would look like a limit on standard error, which has no limit.
    let is_without_file = config.audit.max_mib.is_some() && config.audit.file.is_none();
    if is_without_file { Err(ConfigError::AuditRotation) } else { Ok(()) }
}

/// Checks that there is one store, and the numeric settings of its database.
///
/// # Errors
/// The first problem found.
pub(super) fn store(config: &Config) -> Result<(), ConfigError> {
    one_store(config)?;
    config.etcd.as_ref().map_or(Ok(()), etcd)?;
    config.postgres.as_ref().map_or(Ok(()), postgres)
}

fn one_store(config: &Config) -> Result<(), ConfigError> {
    if let (Some(postgres), Some(etcd)) = (&config.postgres, &config.etcd) {
        return Err(ConfigError::TwoDatabases(postgres.shown_url(), etcd.shown_url()));
    }
    match (&config.data, config.shown_database()) {
        (Some(data), Some(database)) => Err(ConfigError::TwoStores { data: data.clone(), database }),
        _ => Ok(()),
    }
}

fn addresses(config: &Config) -> Result<(), ConfigError> {
    if config.tls.is_none() && !config.listen.ip().is_loopback() && !config.insecure_plaintext {
        return Err(ConfigError::Plaintext(config.listen));
    }
    // Two listeners on port 0 get different free ports, so equal addresses with port 0 are no
    // conflict.
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

    /// Parses a configuration without cells, adds the development cells, and checks the result.
    fn checked_without_cells(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        Config { cells: Config::development().cells, ..config }.checked().map_err(|error| error.to_string())
    }

    /// The log shows the error of a reload.
    #[test]
    fn an_invalid_file_is_told_without_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leasehold.toml");
        for (text, place, reason) in [
            ("\n[postgres]\nurl = \"postgres://u:secret@h/d\" x\n", "line 3, column ", "newline"),
            ("listen = \"localhost\"\n", "line 1, column 10: `listen`: ", "address"),
            ("[postgres]\npostgres://u:secret@h/d?a=1\n", "line 2, column ", ""),
            ("[postgres]\nurl = \"postgres://u:secret@h/d\n", "line 2, column ", "`url`: "),
            ("[postgres]\nurl = postgres://u:secret@h/d\n", "line 2, column ", "string"),
            ("postgres = \"postgres://u:secret@h/d\"\n", "line 1, column 12", "expected"),
            ("[postgres]\npassword = 'secret'\n", "line 2, column 1", "unknown field `password`"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Config::read(&path).unwrap_err().to_string();
            assert!(!error.contains("secret") && !error.contains('\n'), "{error}");
            assert!(error.contains(place) && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_configuration_needs_cells_and_development_has_two() {
        assert!(checked("").unwrap_err().starts_with("the configuration has no `[[cells]]`: "));
        assert_eq!(Config::development().checked().unwrap().cells.len(), 2);
    }

    /// Returns the configuration text of two cells. Each line of `one` and `two` replaces the valid
    /// line of the same field in the first and the second cell.
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
    fn invalid_cells_are_refused_by_name() {
        for (one, two, said) in [
            ("id = 0", "", "cell id 0 is not 1 or more"),
            ("", "id = 1", "cell id 1 is used twice"),
            ("name = \" \"", "", "cell 1 has an empty `name`"),
            ("", "name = \"cell-1\"", "cells 1 and 2 have the same `name`, `cell-1`: rename one"),
            ("", "address = \"\"", "`address` of cell 2, ``,"),
            ("", "address = \"ftp://a.example\"", "`address` of cell 2, `ftp://a.example`,"),
            ("address = \"https://\"", "", "`address` of cell 1, `https://`,"),
            ("address = \"/cells/1\"", "", "`address` of cell 1"),
            ("address = \"a b\"", "", "`address` of cell 1"),
            ("address = \"https://a:x\"", "", "`address` of cell 1"),
            ("address = \"a:70000\"", "", "`address` of cell 1"),
            ("address = \"https://me@a\"", "", "`address` of cell 1"),
            (
                "",
                "session_prefix = \"cell-1-\"",
                "`session_prefix` of cell 1, `cell-1-`, is also the start of cell 2's",
            ),
            (
                "",
                "session_prefix = \"cell\"",
                "`session_prefix` of cell 2, `cell`, is also the start of cell 1's, `cell-1-`",
            ),
            ("sequence_range = { minval = 0, maxval = 9 }", "", "`sequence_range` of cell 1 goes from 0 to 9"),
            ("", "sequence_range = { minval = 9, maxval = 8 }", "`sequence_range` of cell 2 goes from 9 to 8"),
            ("", "sequence_range = { minval = 1999, maxval = 2999 }", "cells 1 and 2 overlap from 1999 to 1999"),
            ("sequence_range = { minval = 1, maxval = 9999 }", "", "cells 1 and 2 overlap from 2001 to 2999"),
            ("pages_address = \"https://\"", "", "`pages_address` of cell 1, `https://`,"),
            ("sequence_ranges = [{ minval = 1, maxval = 2 }]", "", "cell 1 has `sequence_range` and `sequence_ranges`"),
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
            ("pages_address = \"pages.example\"", "address = \"two.example\""),
            ("sequence_range = { minval = 1, maxval = 9223372036854775807 }", ""),
            ("sequence_range = { minval = -9223372036854775808, maxval = 9223372036854775807 }", ""),
            (
                "sequence_range = { minval = 1, maxval = 9223372036854775807 }",
                "sequence_range = { minval = 1, maxval = 9223372036854775807 }",
            ),
        ] {
            assert_eq!(checked(&cells(one, two)).map(|config| config.cells.len()), Ok(2), "{one} {two}");
        }
    }

    #[test]
    fn a_cell_may_have_several_ranges_and_a_default_cell_must_exist() {
        let range = |from: i64, to: i64| format!("{{ minval = {from}, maxval = {to} }}");
        let cell = |id: i64, ranges: &[String]| {
            let ranges = ranges.join(", ");
            format!("[[cells]]\nid = {id}\nname = \"{id}\"\naddress = \"a\"\nsequence_ranges = [{ranges}]\n")
        };
        let two = cell(1, &[range(1, 9), range(20, 29)]) + &cell(2, &[range(10, 19)]);
        let config = checked(&format!("default_cell = 2\n{two}")).unwrap();
        assert_eq!(config.default_cell(), Some(CellId(2)));
        assert_eq!(config.cells[0].ranges().len(), 2);
        assert_eq!(config.overlapping_cells(), []);
        assert_eq!(checked(&two).unwrap().default_cell(), Some(CellId(1)));
        let legacy = checked(&(cell(7, &[range(1, i64::MAX)]) + &two)).unwrap();
        assert_eq!(legacy.overlapping_cells(), [(CellId(7), CellId(1)), (CellId(7), CellId(2))]);
        for (text, said) in [
            (format!("default_cell = 3\n{two}"), "`default_cell` is 3"),
            (cell(1, &[range(1, 9), range(9, 29)]), "cells 1 and 1 overlap from 9 to 9"),
            (cell(1, &[range(1, 9), range(30, 39)]) + &cell(2, &[range(39, 40)]), "cells 1 and 2 overlap from 39"),
            (cell(1, &[range(0, 9)]), "`sequence_range` of cell 1 goes from 0 to 9"),
        ] {
            let error = checked(&text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        let tls = "[tls]\ncertificate = \"a\"\nkey = \"b\"\n";
        let with_ca = |line: &str| format!("{tls}client_ca = \"c\"\n{line}");
        let database = |line: &str| format!("[postgres]\nurl = \"postgres://db\"\n{line}");
        for (text, said) in [
            ("settled_retention_seconds = 0".to_owned(), "`settled_retention_seconds` is 0"),
            ("[limits]\nqueued_begins = 0".to_owned(), "`limits.queued_begins` is 0"),
            ("[limits]\nheld_claims = 0".to_owned(), "`limits.held_claims` is 0"),
            ("[limits]\nconcurrent_lists = 0".to_owned(), "`limits.concurrent_lists` is 0"),
            ("[limits]\nqueued_lists = 0".to_owned(), "`limits.queued_lists` is 0"),
            ("[limits]\nstreams_per_connection = 0".to_owned(), "`limits.streams_per_connection` is 0"),
            ("[limits]\nidle_seconds = 0".to_owned(), "`limits.idle_seconds` is 0"),
            ("[limits]\nconcurrent_lists = 9223372036854775807".to_owned(), "give 1 to 1000000,"),
            ("settled_retention_seconds = 9223372036854775807".to_owned(), "`settled_retention_seconds` is 92233"),
            (database("write_connections = 9999999"), "`postgres.write_connections` is 9999999: give 1 to 64,"),
            (database("read_connections = 1001"), "`postgres.read_connections` is 1001: give 1 to 1000,"),
            (database("patience_seconds = 0"), "`postgres.patience_seconds` is 0: give 1 to 86400,"),
            (database("migration_wait_seconds = 0"), "`postgres.migration_wait_seconds` is 0"),
            (database("statement_timeout_seconds = 86401"), "`postgres.statement_timeout_seconds` is 86401"),
            (with_ca("reload_interval_seconds = 0"), "`tls.reload_interval_seconds` is 0"),
            (with_ca("trust_domain = \"\""), "`tls.trust_domain`, ``,"),
            (with_ca("trust_domain = \"Example.org\""), "`tls.trust_domain`, `Example.org`,"),
            (with_ca("trust_domain = \"spiffe://a\""), "`tls.trust_domain`, `spiffe://a`,"),
            (tls.to_owned(), "missing field `client_ca`"),
            (
                "metrics_listen = \"127.0.0.1:7171\"".to_owned(),
                "`metrics_listen` and `listen` are both `127.0.0.1:7171`",
            ),
            ("[subjects]\ncell = \"CELL\"".to_owned(), "`subjects.cell` is `CELL`"),
            ("[subjects]\ncell = \"{id}{id}\"".to_owned(), "`subjects.cell` is `{id}{id}`"),
            ("[subjects]\nadmin = \"x\"\nrouter = \"x\"".to_owned(), "the name `x`, which stands for two kinds"),
            ("[subjects]\nadmin = \"\"".to_owned(), "the name ``, which is empty"),
            ("[subjects]\nadmin = \"x\u{200b}\"".to_owned(), "`, which has the invisible character U+200B"),
            ("[subjects]\nrouter = \"x\\u0000\"".to_owned(), "`, which has the invisible character U+0000"),
            (
                "[subjects]\nadmin = \"c\u{663}\"\ncell = \"c{id}\"".to_owned(),
                "the name `c\u{663}`, which looks like a cell's",
            ),
            ("[subjects]\nadmin = \"c5\"\ncell = \"c{id}\"".to_owned(), "the name `c5`, which stands for two kinds"),
            ("[subjects]\nadmin = \"x\"\nbalancers = [\"x\"]".to_owned(), "the name `x`, which stands for two kinds"),
            ("[subjects]\nadmin = \" \"".to_owned(), "the name ` `, which has spaces"),
            ("[subjects]\nadmin = \"x\"\nrouter = \"x \"".to_owned(), "the name `x `, which has spaces"),
            ("[subjects]\nadmin = \"c05\"\ncell = \"c{id}\"".to_owned(), "the name `c05`, which looks like a cell's"),
            ("[subjects]\ncell = \" c{id}\"".to_owned(), "the name ` c{id}`, which has spaces"),
            ("[subjects]\nbalancers = [\"x\", \"x\"]".to_owned(), "the name `x`, which is there twice"),
            (format!("{}[subjects]\nloopback_balancer = true", with_ca("")), "`subjects.loopback_balancer` needs"),
            (
                "listen = \"0.0.0.0:1\"\ninsecure_plaintext = true\n[subjects]\nloopback_balancer = true".to_owned(),
                "`subjects.loopback_balancer` needs",
            ),
            ("listen = \"0.0.0.0:1\"".to_owned(), "`0.0.0.0:1` is not a loopback address"),
            ("[audit]\nmax_mib = 5".to_owned(), "`audit.max_mib` rotates the audit file, and there is no `audit.file`"),
            (format!("data = \"d\"\n{}", database("")), "both a data directory (`d`, from"),
        ] {
            let error = checked_without_cells(&text).expect_err(&text);
            assert!(error.contains(said), "{text}: {error}");
        }
        for text in [
            String::new(),
            with_ca("trust_domain = \"a-b_c.example.0\""),
            "min_free_disk_mib = 0".to_owned(),
            "[audit]\nfile = \"a\"\nmax_mib = 5".to_owned(),
            database("write_connections = 64\nread_connections = 1000\nconnect_timeout_seconds = 86400"),
            "listen = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"".to_owned(),
        ] {
            checked_without_cells(&text).unwrap();
        }
    }

    #[test]
    fn the_address_for_other_servers_is_one_that_they_can_call() {
        let database = "[postgres]\nurl = \"postgres://db\"\n";
        let tls = "[tls]\ncertificate = \"a\"\nkey = \"b\"\nclient_ca = \"c\"\n";
        let check = |address: &str, tables: &str| {
            checked_without_cells(&format!("[locks]\npeer_address = {address:?}\n{tables}")).map(drop)
        };
        let with_tls = format!("{database}{tls}");
        for (address, tables) in [
            ("http://one:1", database),
            ("http://[::1]:7171", database),
            ("https://one.internal", &with_tls),
            ("https://10.0.0.1:7171/", &with_tls),
        ] {
            assert_eq!(check(address, tables), Ok(()), "{address}");
        }
        for (address, tables, said) in [
            ("http://one:1", "", "`locks.peer_address` needs `[postgres]`"),
            ("https://one:1", database, "`https://one:1`, is not of the form `http://HOST:PORT`"),
            ("http://one:1", &with_tls, "`http://one:1`, is not of the form `https://HOST:PORT`"),
            ("http://one:1/x", database, "`http://one:1/x`, is not"),
            ("http://one:1?x", database, "`http://one:1?x`, is not"),
            ("http://me@one:1", database, "`http://me@one:1`, is not"),
            ("http://one:0", database, "`http://one:0`, is not"),
            ("one:1", database, "`one:1`, is not"),
            ("", database, "``, is not"),
        ] {
            let error = check(address, tables).unwrap_err();
            assert!(error.contains(said), "{address}: {error}");
        }
    }

    #[test]
    fn b12_a_bucket_type_has_a_number_and_a_name_of_its_own() {
        let with_bucket_types = |types: &[(i32, &str)]| {
            let rule = |(number, name): &(i32, &str)| {
                format!("[[bucket_types]]\nnumber = {number}\nname = {name:?}\nform = \"word\"\nfold_case = false\n")
            };
            checked_without_cells(&types.iter().map(rule).collect::<String>())
        };
        assert_eq!(with_bucket_types(&[(100, "X"), (101, "Y-2")]).unwrap().bucket_types.len(), 2);
        for (types, said) in [
            (&[(0, "X")][..], "bucket type number 0 is not 1 or more"),
            (&[(4, "X")], "bucket type number 4 is built in or used twice"),
            (&[(100, "X"), (100, "Y")], "bucket type number 100 is built in or used twice"),
            (&[(14, "X")], "bucket type number 14 is built in or used twice"),
            (&[(100, "")], "the `name` of bucket type 100, ``,"),
            (&[(100, "A:B")], "the `name` of bucket type 100, `A:B`,"),
            (&[(100, "A B")], "the `name` of bucket type 100, `A B`,"),
            (&[(100, "12")], "the `name` of bucket type 100, `12`,"),
            (&[(100, "X"), (101, "x")], "bucket types 100 and 101 have the same `name`, `x`: rename one"),
            (&[(100, "usernames")], "bucket types 4 and 100 have the same `name`"),
        ] {
            let error = with_bucket_types(types).expect_err(said);
            assert!(error.contains(said), "{types:?}: {error}");
        }
        let choice = |form: &str| {
            let rule = format!("number = 17\nname = \"PAGES_DOMAINS\"\nfold_case = true\nform = {form}\n");
            format!("[[bucket_types]]\n{rule}")
        };
        assert_eq!(checked_without_cells(&choice("\"domain\"")).unwrap().bucket_types.len(), 1);
        assert_eq!(
            checked_without_cells(&choice("\"word\"\nrefuse_confusables = true")).unwrap().bucket_types.len(),
            1
        );
        for text in [choice("\"path\""), choice("\"word\""), choice("\"domain\"").repeat(2)] {
            assert!(checked_without_cells(&text).unwrap_err().contains("built in or used twice"), "{text}");
        }
        let unknown = "[[bucket_types]]\nnumber = 100\nname = \"X\"\nform = \"word\"\nfold_case = true\nfold = 1";
        assert!(checked_without_cells(unknown).unwrap_err().contains("unknown field `fold`"));
    }
}
