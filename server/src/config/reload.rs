//! The difference between the configuration in force and a newly read one: the settings that a
//! reload changes, and those that need a restart. The result has the names of settings, but never
//! their values.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::{Config, ConfigError, LocksConfig, LogConfig};

/// The settings and tables that a running server can't change. The table `[tls]` is not listed: it
/// needs a restart only if it is added or removed.
const RESTART: [&str; 12] = [
    "listen",
    "metrics_listen",
    "http_hosts",
    "data",
    "postgres",
    "etcd",
    "insecure_plaintext",
    "settled_retention_seconds",
    "locks.peer_address",
    "log.format",
    "audit",
    "traces",
];

/// The most names of settings in one line of the log.
const MAX_NAMES: usize = 50;

/// The names of settings, such as `limits.connections` and `cells[7].address`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingNames(Vec<String>);

impl SettingNames {
    /// True if the list has no names.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a setting of this table is named.
    pub fn has_any_of(&self, table: &str) -> bool {
        self.0.iter().any(|name| is_in(name, table))
    }
}

impl From<SettingNames> for Vec<String> {
    fn from(names: SettingNames) -> Self {
        names.0
    }
}

impl fmt::Display for SettingNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        f.write_str(&shown)?;
        match self.0.len().saturating_sub(MAX_NAMES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The settings that differ between a newly read configuration and the one in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChange {
    /// The settings that are changed at once.
    pub changed: SettingNames,
    /// The settings that keep their value until a restart.
    pub kept_until_restart: SettingNames,
}

impl Config {
    /// Returns the configuration after a reload that has read `read`, and the settings that differ.
    /// A setting that needs a restart keeps its value.
    ///
    /// # Errors
    /// A setting of `read` contradicts one that keeps its value.
    pub fn reloaded(&self, read: Self) -> Result<(Self, ConfigChange), ConfigError> {
        let mut names = Vec::new();
        differences("", &self.to_value(), &read.to_value(), &mut names);
        let needs_restart = |name: &String| name == "tls" || RESTART.iter().any(|restart| is_in(name, restart));
        let (kept, changed) = names.into_iter().partition(needs_restart);
        let change = ConfigChange { changed: SettingNames(changed), kept_until_restart: SettingNames(kept) };
        Ok((self.with_changeable(read).checked()?, change))
    }

    /// Returns `read`, but with the values in force for settings that need a restart.
    fn with_changeable(&self, read: Self) -> Self {
        let kept = self.clone();
        Self {
            listen: kept.listen,
            metrics_listen: kept.metrics_listen,
            http_hosts: kept.http_hosts,
            data: kept.data,
            postgres: kept.postgres,
            etcd: kept.etcd,
            insecure_plaintext: kept.insecure_plaintext,
            settled_retention_seconds: kept.settled_retention_seconds,
            locks: LocksConfig { peer_address: kept.locks.peer_address, ..read.locks },
            log: LogConfig { format: kept.log.format, ..read.log },
            audit: kept.audit,
            traces: kept.traces,
            tls: if kept.tls.is_some() == read.tls.is_some() { read.tls } else { kept.tls },
            ..read
        }
    }

    fn to_value(&self) -> Value {
        // Every setting is text, a number or a list, so the conversion can't fail. If it failed,
        // the result would name no single setting.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// True if `name` names `outer` itself, or a setting inside of `outer`.
fn is_in(name: &str, outer: &str) -> bool {
    name.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Adds the names of settings below `name` whose values in `old` and `new` differ.
fn differences(name: &str, old: &Value, new: &Value, into: &mut Vec<String>) {
    if old == new {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        let separator = if name.is_empty() { "" } else { "." };
        return members(old, new, |key| format!("{name}{separator}{key}"), into);
    }
    match (by_number(old), by_number(new)) {
        (Some(old), Some(new)) => members(&old, &new, |key| format!("{name}[{key}]"), into),
        _ => into.push(name.to_owned()),
    }
}

fn members(old: &Map<String, Value>, new: &Map<String, Value>, named: impl Fn(&str) -> String, into: &mut Vec<String>) {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let value = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        differences(&named(key), &value(old), &value(new), into);
    }
}

/// Returns the tables of a list as a map, with the `id` or `number` of each as its key; `None` if
/// `list` is not a list, or if an element has neither.
fn by_number(list: &Value) -> Option<Map<String, Value>> {
    let number = |table: &Value| table.get("id").or_else(|| table.get("number")).map(Value::to_string);
    list.as_array()?.iter().map(|table| Some((number(table)?, table.clone()))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const CELLS: &str = "[[cells]]\nid = 1\nname = \"one\"\naddress = \"one.example\"\n";

    fn config(text: &str) -> Config {
        toml::from_str::<Config>(&format!("{text}\n{CELLS}")).unwrap().checked().unwrap()
    }

    fn names(change: &SettingNames) -> String {
        change.to_string().replace('`', "")
    }

    #[test]
    fn changes_are_named_by_table_and_number() {
        let more = "[[cells]]\nid = 7\nname = \"seven\"\naddress = \"seven.example\"\n";
        for (read, changed) in [
            (config(""), ""),
            (
                config("default_cell = 1\n[limits]\nconnections = 5\nidle_seconds = 9\n"),
                "default_cell, limits.connections, limits.idle_seconds",
            ),
            (config(&format!("[log]\nfilter = \"debug\"\n{more}")), "cells[7], log.filter"),
            (config("[subjects]\nrouter = \"r\"\n"), "subjects.router"),
            (
                config("[[bucket_types]]\nnumber = 1000\nname = \"TEAMS\"\nform = \"word\"\nfold_case = true\n"),
                "bucket_types[1000]",
            ),
        ] {
            let (config, change) = config("").reloaded(read.clone()).unwrap();
            assert_eq!((names(&change.changed).as_str(), change.kept_until_restart.is_empty()), (changed, true));
            assert_eq!(config.to_value(), read.to_value());
        }
        let mut moved = config("");
        moved.cells.iter_mut().for_each(|cell| cell.address = "moved.example".into());
        let (_, change) = config("").reloaded(moved).unwrap();
        assert_eq!(names(&change.changed), "cells[1].address");
        assert!(change.changed.has_any_of("cells") && !change.changed.has_any_of("cell"));
    }

    #[test]
    fn settings_that_need_a_restart_keep_their_value() {
        let tls = "[tls]\ncertificate = \"a\"\nkey = \"b\"\nclient_ca = \"c\"\n";
        let old = config("[postgres]\nurl = \"postgres://me:secret@db/claims\"\n");
        let read = config(&format!(
            "listen = \"127.0.0.1:1\"\nsettled_retention_seconds = 5\nmin_free_disk_mib = 9\n[log]\nformat = \"json\"\nfilter = \"warn\"\n[locks]\npeer_address = \"https://one:1\"\n[postgres]\nurl = \"postgres://db/other\"\n{tls}"
        ));
        let (config, change) = old.reloaded(read).unwrap();
        assert_eq!(names(&change.changed), "log.filter, min_free_disk_mib");
        assert_eq!(
            names(&change.kept_until_restart),
            "listen, locks.peer_address, log.format, postgres.url, settled_retention_seconds, tls"
        );
        assert_eq!((config.min_free_disk_mib, config.log.filter.as_str(), config.tls.is_none()), (9, "warn", true));
        assert_eq!(config.postgres.unwrap().url, "postgres://me:secret@db/claims");
    }

    #[test]
    fn a_list_of_names_has_an_end() {
        let names = SettingNames((0..60).map(|number| format!("cells[{number}]")).collect());
        assert!(names.to_string().ends_with("`cells[49]` and 10 more"), "{names}");
    }
}
