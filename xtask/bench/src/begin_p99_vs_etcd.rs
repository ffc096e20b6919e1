//! The row `begin-p99-vs-etcd`: the 99th percentile of a begin's time, compared with that of etcd's
//! first transaction, under the load of `saves-vs-etcd`.

use anyhow::Result;

use super::Context;
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::Comparison;

const HEADING: Heading = Heading { name: "begin-p99-vs-etcd", unit: "µs", better: Better::Lower, target: 1.0 };

/// Measures the row `begin-p99-vs-etcd`.
///
/// # Errors
/// One of the two servers cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    let Comparison { ours, etcd } = context.comparison().await?;
    Ok(HEADING.row(ours.begin_p99_us, etcd.begin_p99_us))
}
