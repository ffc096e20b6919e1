//! Plays the steps `verify` and `reconcile`: drives the engine's state machines like a cell does.
//! The step contains the rows of the cell's table.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Catalogue;
use leasehold_core::claim::SourceId;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::{self, Event, LocalRow, Presence, Reconciliation, RemoteLease, Settled};
use leasehold_core::rejection::Reason;
use leasehold_core::time::Timestamp;
use leasehold_core::verify::{self, RecordRef, Records, Rows, UpdateResult, Verification};
use uuid::Uuid;

use super::host::{Host, HostRefusal, RecordsQuery};

/// The time of every read by the cell. It is late enough that stale leases and rows can be older.
const NOW: Timestamp = Timestamp::from_micros(1_000_000);
const STALE_AFTER_MICROS: u64 = 1000;

/// A row of the cell's table: the encoded primary key, and the claims that the row requires.
pub(super) type TableRow = (Vec<u8>, Vec<super::step::RowClaim>);

/// The step `verify`: the table to verify, and the rows that the table has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerifyStep {
    pub(super) cell: i64,
    pub(super) source_type: i32,
    pub(super) rows_per_page: usize,
    pub(super) max_destroy_share: verify::Share,
    pub(super) rows: Vec<TableRow>,
}

/// The step `reconcile`: the age of all leases on the server, and the local lease rows with their
/// ages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReconcileStep {
    pub(super) cell: i64,
    pub(super) remote: Presence,
    pub(super) local: Vec<(String, Presence)>,
}

fn at(presence: Presence) -> Timestamp {
    NOW.minus_micros(if presence == Presence::Stale { STALE_AFTER_MICROS } else { 0 })
}

/// Returns the bucket types to verify: those of the rows' claims, and usernames, so that there is
/// at least one.
fn bucket_types(rows: &[TableRow]) -> impl Iterator<Item = BucketType> {
    rows.iter().flat_map(|(_, claims)| claims).map(|claim| claim.bucket_type).chain([BucketType(4)])
}

/// Plays the step `verify`. Returns its output: one line with the counts of the verification's
/// report, and one with the refusal if the run was refused.
pub(super) fn verify<H: Host>(host: &mut H, step: &VerifyStep) -> Result<Vec<String>> {
    let settings = verify::VerifySettings {
        source_type: leasehold_core::claim::SourceType(step.source_type),
        bucket_types: bucket_types(&step.rows).collect(),
        recent_within_micros: 0,
        rows_per_page: step.rows_per_page,
        dry_run: false,
        max_destroy_share: step.max_destroy_share,
        hash_seed: 0,
    };
    let mut run = Verification::new(settings.clone(), Catalogue::default(), None);
    let mut lease = None;
    while verify_step(host, step, &settings, &mut run, &mut lease)? {}
    let report = serde_json::to_value(run.report())?;
    let counts = report.as_object().context("a report has members")?.iter();
    let counts = counts.filter(|(name, count)| count.as_u64().is_some_and(|count| count > 0) && *name != "records");
    let counts: Vec<_> = counts.map(|(name, count)| format!("{name}={count}")).collect();
    let refusal = match run.step() {
        verify::VerifyStep::Refused(refusal) => Some(format!(
            "refused destroys={} claims={} share={:.0}",
            refusal.destroys,
            refusal.claims,
            refusal.needed_share().as_f64() * 100.0
        )),
        _ => None,
    };
    Ok([format!("verified {}", counts.join(" "))].into_iter().chain(refusal).collect())
}

fn verify_step<H: Host>(
    host: &mut H,
    world: &VerifyStep,
    settings: &verify::VerifySettings,
    run: &mut Verification,
    lease: &mut Option<Uuid>,
) -> Result<bool> {
    match run.step().clone() {
        verify::VerifyStep::FindBound { after, rows } => {
            let ids = world.rows.iter().map(|(id, _)| SourceId::from_bytes(id));
            run.bound(ids.filter(|id| *id > after).nth(rows - 1))?;
        }
        verify::VerifyStep::ListRecords { after, upto } => {
            let (records, truncated) = list(host, world, settings, &after, &upto)?;
            run.records(records, truncated)?;
        }
        verify::VerifyStep::ReadRows { after, upto } => {
            let covers = |id: &[u8]| id > after.as_bytes() && (upto.is_empty() || id <= upto.as_bytes());
            run.rows(rows(world, covers))?;
        }
        verify::VerifyStep::ReadAgain { ids } => run.rows(rows(world, |id| ids.contains(&SourceId::from_bytes(id))))?,
        verify::VerifyStep::Begin(update) => match host.begin(world.cell, update, 0, None)? {
            Err(refusal) => run.updated(rejection_result(&refusal)?)?,
            Ok(begun) => {
                *lease = Some(begun.lease);
                run.updated(UpdateResult::Begun)?;
            }
        },
        verify::VerifyStep::Commit => {
            let lease = lease.take().context("no update is begun")?;
            let settled = host.settle(world.cell, &lease.to_string(), Outcome::Committed)?;
            ensure!(settled.is_ok(), "a lease just begun can't be committed");
            run.updated(UpdateResult::Settled)?;
        }
        verify::VerifyStep::RollBack => bail!("the rows of a step never change, so no update is rolled back"),
        verify::VerifyStep::PageDone => run.proceed()?,
        verify::VerifyStep::Refused(_) | verify::VerifyStep::Done => return Ok(false),
    }
    Ok(true)
}

fn list<H: Host>(
    host: &mut H,
    world: &VerifyStep,
    settings: &verify::VerifySettings,
    after: &SourceId,
    upto: &SourceId,
) -> Result<(Records, bool)> {
    let query = RecordsQuery {
        cell: world.cell,
        source_type: world.source_type,
        bucket_types: settings.bucket_types.iter().map(|bucket_type| bucket_type.0).collect(),
        source_id_gt: after.as_bytes().to_vec(),
        source_id_lte: upto.as_bytes().to_vec(),
    };
    let (listed, truncated) = accepted(host.records(&query)?)?;
    let mut records = Records::new(NOW);
    for record in &listed {
        records.record(RecordRef {
            source_id: record.source.id.as_bytes(),
            bucket_type: record.bucket_type.0,
            value: &record.spelling,
            subject_type: record.subject.subject_type,
            subject_id: record.subject.id,
            updated_at: NOW,
            held: record.status != "ACTIVE",
        });
    }
    Ok((records, truncated))
}

fn rows(world: &VerifyStep, covers: impl Fn(&[u8]) -> bool) -> Rows {
    let mut rows = Rows::new(NOW);
    for (id, claims) in world.rows.iter().filter(|(id, _)| covers(id)) {
        rows.row(id, None);
        for claim in claims {
            rows.claim(claim.bucket_type.0, &claim.value, claim.subject.subject_type, claim.subject.id);
        }
    }
    rows
}

/// Returns the page of an accepted list call.
///
/// # Errors
/// The service refused to list.
fn accepted<T>(answer: Result<T, HostRefusal>) -> Result<T> {
    answer.map_err(|refusal| anyhow::anyhow!("the host refuses to list: {}", refusal.reason))
}

/// Converts the refusal of an update into the engine's type, the input of a verification.
fn rejection_result(refusal: &HostRefusal) -> Result<UpdateResult> {
    let reason = |code: &str| {
        Reason::ALL.into_iter().find(|reason| reason.code() == code).with_context(|| format!("`{code}` is no reason"))
    };
    let claims: Result<_> = refusal.offences.iter().map(|(place, _, code)| Ok((*place, reason(code)?))).collect();
    Ok(UpdateResult::Refused(claims?))
}

/// Plays the step `reconcile`. Returns its output: each settle, each deleted local row, and the
/// rows that remain. `name` returns the name of a lease in the output, such as `L1`.
pub(super) fn reconcile<H: Host>(
    host: &mut H,
    step: &ReconcileStep,
    mut local: BTreeMap<Uuid, Presence>,
    name: impl Fn(Uuid) -> String,
) -> Result<Vec<String>> {
    let settings = reconcile::Settings { stale_after_micros: STALE_AFTER_MICROS, rows_per_page: 100 };
    let mut run = Reconciliation::new(settings);
    let mut lines = Vec::new();
    loop {
        let event = match run.step() {
            reconcile::Step::ListLeases { .. } => {
                let (leases, _) = accepted(host.leases(step.cell, None, None, None)?)?;
                let lease = |lease| RemoteLease { created_at: at(step.remote), lease: LeaseId(lease) };
                Event::Leases { leases: leases.into_iter().map(lease).collect(), now: NOW, cursor: None }
            }
            reconcile::Step::FindRows { leases } => local_rows(&local, |lease, _| leases.contains(&LeaseId(*lease))),
            reconcile::Step::ListRows { .. } => local_rows(&local, |_, presence| presence == Presence::Stale),
            reconcile::Step::Settle { lease, outcome } => {
                let answer = settle(host, step.cell, lease.0, outcome)?;
                lines.push((lease.0, format!("settle {} {outcome:?}: {answer:?}", name(lease.0))));
                Event::Settled { answer }
            }
            reconcile::Step::DeleteRow { lease, fate } => {
                lines.push((lease.0, format!("delete {}: {fate:?}", name(lease.0))));
                local.remove(&lease.0);
                Event::Deleted
            }
            reconcile::Step::Done => break,
        };
        run.feed(event)?;
    }
    // The engine handles leases in the order of their ids, which are random on a server, so the
    // lines are sorted by name.
    lines.sort_by_key(|(lease, _)| name(*lease));
    let mut lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    let mut left: Vec<_> = local.into_keys().map(&name).collect();
    left.sort_unstable();
    lines.push(format!("reconciled, rows left: {}", if left.is_empty() { "none".to_owned() } else { left.join(" ") }));
    Ok(lines)
}

fn local_rows(local: &BTreeMap<Uuid, Presence>, is_wanted: impl Fn(&Uuid, Presence) -> bool) -> Event {
    let rows = local.iter().filter(|(lease, presence)| is_wanted(lease, **presence));
    let rows = rows.map(|(lease, presence)| LocalRow { created_at: at(*presence), lease: LeaseId(*lease) });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    Event::Rows { rows, now: NOW }
}

fn settle<H: Host>(host: &mut H, cell: i64, lease: Uuid, outcome: Outcome) -> Result<Settled> {
    Ok(match host.settle(cell, &lease.to_string(), outcome)? {
        Ok(()) => Settled::Done,
        Err(refusal) => match refusal.reason.as_str() {
            "LEASE_ROLLED_BACK" => Settled::RolledBack,
            "LEASE_COMMITTED" => Settled::Committed,
            "LEASE_NOT_FOUND" => Settled::NotFound,
            reason => bail!("a settle is refused as {reason}"),
        },
    })
}
