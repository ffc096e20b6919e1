//! Plays the steps of a scenario on a host, and formats their outputs in the notation of golden
//! vectors.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use leasehold_core::claim::UserData;
use leasehold_core::reconcile::Presence;
use uuid::Uuid;

use super::host::{Host, HostRefusal, HostResult, ObservedRecord, RecordsQuery, Since};
use super::machines::{self, ReconcileStep};
use super::notation::{known_source_types, read_text, write_bucket_type, write_source, write_subject, write_text};
use super::step::{Step, parse};

const CELLS: std::ops::RangeInclusive<i64> = 1..=3;
/// The most lines of one kind in an output. If there are more, the output has a summary instead.
const MANY: usize = 20;
/// A lease id that no host creates, for steps that settle the lease `unknown`.
const UNKNOWN_LEASE: &str = "00000000-0000-4000-8000-00000000dead";
/// The reasons that concern the form of a request. Their outputs include the message, because only
/// the message names the fault.
const FORM_REASONS: [&str; 4] = ["INVALID_UPDATE", "LIMIT_EXCEEDED", "VALUE_NOT_ALLOWED", "IDEMPOTENCY_KEY_REUSED"];

/// Plays the steps of one scenario on a host, and remembers the leases that they begin.
#[derive(Debug)]
pub struct Player<H: Host> {
    host: H,
    leases: Vec<Uuid>,
    first_fence: Option<u64>,
    cursor: Option<H::Cursor>,
    source_types: BTreeSet<i32>,
    state: Vec<String>,
}

impl<H: Host> Player<H> {
    /// Returns a player for one scenario on `host`.
    ///
    /// # Errors
    /// The host fails, or its service is not empty.
    pub fn new(host: H) -> Result<Self> {
        let source_types = known_source_types().collect();
        let mut player =
            Self { host, leases: Vec::new(), first_fence: None, cursor: None, source_types, state: Vec::new() };
        player.state = player.read_state()?;
        if player.state != ["nothing"] {
            bail!("a scenario needs an empty service, but this one has:\n{}", player.state.join("\n"));
        }
        Ok(player)
    }

    /// Plays a step. Returns the lines of its output: the reply, then the whole state if the step
    /// changed it.
    ///
    /// # Errors
    /// The step is invalid, or the host fails.
    pub fn play(&mut self, text: &str) -> Result<Vec<String>> {
        let replies: Vec<Vec<String>> = parse(text)?.into_iter().map(|step| self.reply(step)).collect::<Result<_>>()?;
        let mut lines = match replies.as_slice() {
            [first, .., last] => [first.as_slice(), &["…".to_owned()], last].concat(),
            _ => replies.concat(),
        };
        let state = self.read_state()?;
        if state != self.state {
            lines.extend(state.iter().cloned());
            self.state = state;
        }
        Ok(lines)
    }

    fn reply(&mut self, step: Step) -> Result<Vec<String>> {
        Ok(match step {
            Step::Begin { cell, update, organization, key } => {
                let sources = update.creates.iter().filter_map(|claim| claim.source.as_ref());
                self.source_types.extend(sources.map(|source| source.source_type.0).filter(|number| *number > 0));
                let begun = self.host.begin(cell, update, organization, key.as_deref());
                output(begun, |begun| vec![self.write_begun(begun.lease, begun.fence)])?
            }
            Step::Settle { cell, lease, outcome } => {
                let lease = self.read_lease(&lease)?;
                output(self.host.settle(cell, &lease, outcome), |()| vec!["settled".to_owned()])?
            }
            Step::Get(bucket) => {
                let record = self.host.record(&bucket);
                output(record, |record| vec![format!("cell {}: {}", record.cell, self.write_record(&record))])?
            }
            Step::Classify(buckets) => output(self.host.classify(&buckets), |(cell, bucket)| {
                let bucket_type = write_bucket_type(bucket.bucket_type);
                vec![format!("cell {cell} by {bucket_type} {}", write_text(&bucket.value))]
            })?,
            Step::Leases { cell, limit, since, next } => self.list_leases(cell, limit, since, next)?,
            Step::Outstanding { cell } => {
                let leases = self.host.outstanding(cell);
                output(leases, |leases| leases.into_iter().map(|lease| self.write_outstanding(lease)).collect())?
            }
            Step::Records(query) => output(self.host.records(&query), |page| self.write_records(&page))?,
            Step::Verify(step) => machines::verify(&mut self.host, &step)?,
            Step::Reconcile(step) => self.reconcile(&step)?,
            Step::Restart => self.host.restart().map(|()| vec!["restarted".to_owned()])?,
            Step::Pass(seconds) => self.host.pass(seconds).map(|()| vec!["passed".to_owned()])?,
            Step::Forget => vec![format!("forgotten {}", self.host.forget()?)],
        })
    }

    fn reconcile(&mut self, step: &ReconcileStep) -> Result<Vec<String>> {
        let row = |(lease, presence): &(String, Presence)| Ok((self.lease_named(lease)?, *presence));
        let local: Result<_> = step.local.iter().map(row).collect();
        let leases = self.leases.clone();
        let number = |lease: Uuid| leases.iter().position(|known| *known == lease).map_or(0, |at| at + 1);
        machines::reconcile(&mut self.host, step, local?, |lease| format!("L{}", number(lease)))
    }

    fn write_begun(&mut self, lease: Uuid, fence: u64) -> String {
        let first = *self.first_fence.get_or_insert(fence);
        if !self.leases.contains(&lease) {
            self.leases.push(lease);
        }
        // `wrapping_sub` writes a fence below the scenario's first one as a wrong number instead of
        // a panic.
        format!("begun {} fence={}", self.write_lease(lease), fence.wrapping_sub(first).wrapping_add(1))
    }

    fn number_of(&self, lease: Uuid) -> usize {
        self.leases.iter().position(|known| *known == lease).map_or(0, |at| at + 1)
    }

    /// Returns the name of a lease in outputs, such as `L1`; `L0` for a lease that this scenario
    /// has not begun.
    fn write_lease(&self, lease: Uuid) -> String {
        format!("L{}", self.number_of(lease))
    }

    fn read_lease(&self, token: &str) -> Result<String> {
        match token {
            "unknown" => Ok(UNKNOWN_LEASE.to_owned()),
            quoted if quoted.starts_with('"') => read_text(quoted),
            name => Ok(self.lease_named(name)?.to_string()),
        }
    }

    fn lease_named(&self, name: &str) -> Result<Uuid> {
        let number: usize = name.strip_prefix('L').context("a lease is `L` and a number")?.parse()?;
        self.leases.get(number.wrapping_sub(1)).copied().with_context(|| format!("`{name}` has not been begun yet"))
    }

    fn list_leases(&mut self, cell: i64, limit: Option<i32>, since: Option<String>, next: bool) -> Result<Vec<String>> {
        let since = match since.as_deref() {
            Some("future") => Some(Since::Future),
            Some(name) => Some(Since::Lease(self.lease_named(name)?)),
            None => None,
        };
        let cursor = self.cursor.take().filter(|_| next);
        if next && cursor.is_none() {
            bail!("the last list has no next page");
        }
        let page = self.host.leases(cell, limit, since, cursor.as_ref());
        output(page, |(leases, next)| {
            let more = if next.is_some() { ", and more" } else { "" };
            self.cursor = next;
            vec![format!("leases {}{more}", self.write_leases(&leases))]
        })
    }

    /// Formats an outstanding lease and the organization that its begin named, 0 if it named none.
    fn write_outstanding(&self, (lease, organization): (Uuid, i64)) -> String {
        let lease = format!("outstanding L{}", self.number_of(lease));
        if organization == 0 { lease } else { format!("{lease} organization={organization}") }
    }

    fn write_leases(&self, leases: &[Uuid]) -> String {
        let numbers: Vec<_> = leases.iter().map(|lease| self.number_of(*lease)).collect();
        let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
            [first, .., last] if run.len() > 3 => format!("L{first}..L{last}"),
            _ => run.iter().map(|number| format!("L{number}")).collect::<Vec<_>>().join(" "),
        });
        let text = runs.collect::<Vec<_>>().join(" ");
        if text.is_empty() { "none".to_owned() } else { text }
    }

    fn write_records(&self, (records, truncated): &(Vec<ObservedRecord>, bool)) -> Vec<String> {
        let mut lines: Vec<String> = match records.as_slice() {
            [] => vec!["records none".to_owned()],
            [first, .., last] if records.len() > MANY => {
                let ends = [first, last].map(|record| write_source(&record.source));
                vec![format!("records {} from {} to {}", records.len(), ends[0], ends[1])]
            }
            few => few.iter().map(|record| self.write_record(record)).collect(),
        };
        lines.extend(truncated.then(|| "truncated".to_owned()));
        lines
    }

    fn write_record(&self, record: &ObservedRecord) -> String {
        let bucket_type = write_bucket_type(record.bucket_type);
        let spelling = write_text(&record.spelling);
        let subject = write_subject(record.subject);
        let source = write_source(&record.source);
        let data = record.user_data.as_ref().map(write_data).unwrap_or_default();
        let lease = record.lease.map(|lease| format!(" under {}", self.write_lease(lease))).unwrap_or_default();
        format!("{bucket_type} {spelling} {} {subject} from {source}{data}{lease}", record.status)
    }

    fn read_state(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for cell in CELLS {
            lines.extend(self.read_cell(cell).with_context(|| format!("the state of cell {cell}"))?);
        }
        Ok(if lines.is_empty() { vec!["nothing".to_owned()] } else { lines })
    }

    fn read_cell(&mut self, cell: i64) -> Result<Vec<String>> {
        let leases = self.all_leases(cell)?;
        let mut records = Vec::new();
        for source_type in self.source_types.clone() {
            records.extend(self.all_records(cell, source_type)?);
        }
        if leases.is_empty() && records.is_empty() {
            return Ok(Vec::new());
        }
        let mut lines = vec![match leases.as_slice() {
            [] => format!("cell {cell}"),
            leases => format!("cell {cell}: {}", self.write_leases(leases)),
        }];
        let described = if records.len() > MANY { self.sum_up(&records) } else { self.describe(&records) };
        lines.extend(described.into_iter().map(|line| format!("  {line}")));
        Ok(lines)
    }

    fn describe(&self, records: &[ObservedRecord]) -> Vec<String> {
        records.iter().map(|record| self.write_record(record)).collect()
    }

    fn sum_up(&self, records: &[ObservedRecord]) -> Vec<String> {
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        for record in records {
            let lease = record.lease.map(|_| " under leases").unwrap_or_default();
            *counts.entry((record.bucket_type, record.status, lease)).or_default() += 1;
        }
        let lines = counts.into_iter().map(|((bucket_type, status, lease), count)| {
            format!("{count} {} {status}{lease}", write_bucket_type(bucket_type))
        });
        lines.collect()
    }

    fn all_leases(&mut self, cell: i64) -> Result<Vec<Uuid>> {
        let mut all = Vec::new();
        let mut cursor: Option<H::Cursor> = None;
        loop {
            let (leases, next) = accepted(self.host.leases(cell, Some(1000), None, cursor.as_ref()))?;
            all.extend(leases);
            match next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    fn all_records(&mut self, cell: i64, source_type: i32) -> Result<Vec<ObservedRecord>> {
        let mut all: Vec<ObservedRecord> = Vec::new();
        let mut query = RecordsQuery { cell, source_type, ..RecordsQuery::default() };
        loop {
            let (records, truncated) = accepted(self.host.records(&query))?;
            all.extend(records);
            match all.last() {
                Some(last) if truncated => query.source_id_gt = last.source.id.as_bytes().to_vec(),
                None if truncated => bail!("a truncated page is empty"),
                _ => return Ok(all),
            }
        }
    }
}

fn write_data(data: &UserData) -> String {
    format!(" data={}", write_text(&String::from_utf8_lossy(&data.value)))
}

/// Returns the value of an accepted call.
///
/// # Errors
/// The service refused the call, or the host failed.
fn accepted<T>(answer: HostResult<T>) -> Result<T> {
    answer?.map_err(|refusal| anyhow::anyhow!("rejected {}: {}", refusal.reason, refusal.message))
}

/// Returns the output lines of an answer: the lines that `write` makes of an accepted value, or the
/// lines of a refusal.
fn output<T>(answer: HostResult<T>, write: impl FnOnce(T) -> Vec<String>) -> Result<Vec<String>> {
    Ok(answer?.map_or_else(|refusal| write_refusal(&refusal), write))
}

fn write_refusal(refusal: &HostRefusal) -> Vec<String> {
    let retry = if refusal.retry { ", retry" } else { "" };
    let mut lines = vec![format!("rejected {}{retry}", refusal.reason)];
    let offences = &refusal.offences;
    if offences.len() > MANY {
        let runs = offences.chunk_by(|(a, a_type, a_reason), (b, b_type, b_reason)| {
            let next = a.list == b.list && a.position + 1 == b.position;
            next && a_type == b_type && a_reason == b_reason
        });
        lines.extend(runs.filter_map(|run| match run {
            [first, .., (last, bucket_type, reason)] => {
                Some(format!("  {} to {last} {} {reason}", first.0, write_bucket_type(*bucket_type)))
            }
            _ => run.first().map(write_offence),
        }));
    } else {
        lines.extend(offences.iter().map(write_offence));
    }
    if FORM_REASONS.contains(&refusal.reason.as_str()) {
        lines.push(format!("  says {}", refusal.message));
    }
    lines
}

fn write_offence(
    (place, bucket_type, reason): &(leasehold_core::rejection::Place, leasehold_core::bucket::BucketType, String),
) -> String {
    format!("  {place} {} {reason}", write_bucket_type(*bucket_type))
}
