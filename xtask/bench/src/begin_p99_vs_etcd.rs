//! The begin's 99th percentile beside that of etcd's first transaction, under the load of `saves-vs-etcd`.

use anyhow::Result;

use super::Context;
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::Comparison;

const HEADING: Heading = Heading { name: "begin-p99-vs-etcd", unit: "µs", better: Better::Lower, target: 1.0 };

/// Measures the row.
///
/// # Errors
/// Either server cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    let Comparison { ours, etcd } = context.comparison().await?;
    Ok(HEADING.row(ours.begin_p99_us, etcd.begin_p99_us))
}
