//! A world for tests of verification: the table of a cell, a claims server, and a host that drives
//! a run between them.

use std::collections::BTreeMap;
use std::ops::Bound;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue::Catalogue;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, Source, SourceId, SourceType, Subject};
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::query::{RecordPage, RecordQuery, RecordRow};
use leasehold_core::rejection::{Reason, Rejection};
use leasehold_core::rows::{Changes, State};
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::Transaction as _;
use leasehold_core::verify::{
    Checkpoint, Finding, RecordRef, Records, Report, Rows, Share, TooManyDestroys, UpdateResult, Verification,
    VerifySettings, VerifyStep,
};
use uuid::Uuid;

use crate::phases::edges;

pub(crate) const OWN: CellId = CellId(1);
pub(crate) const OTHER: CellId = CellId(2);
pub(crate) const TABLE: SourceType = SourceType(1);
pub(crate) const OTHER_TABLE: SourceType = SourceType(2);
/// The threshold in microseconds: rows and records that were changed within this time are recent.
pub(crate) const RECENT: u64 = 1000;
/// The time of changes that are no longer recent when runs begin.
pub(crate) const LONG_AGO: u64 = 5000;
/// The time at which runs begin.
pub(crate) const START: u64 = 10_000;

/// A claim that a row of the table calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) bucket_type: i32,
    pub(crate) value: String,
    pub(crate) subject_id: i64,
}

/// A row of the cell's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) updated_at: u64,
    /// False if the row is outside the model's scope: the row is not listed and calls for no claim.
    pub(crate) in_scope: bool,
    pub(crate) wishes: Vec<Wish>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) table: BTreeMap<u64, Row>,
    pub(crate) store: MemoryStore,
    pub(crate) rules: Rules,
    pub(crate) leases: u128,
    /// The number of records after which the server cuts its page.
    pub(crate) records_per_page: usize,
    pub(crate) rows_per_page: usize,
    /// The share of the table's claims that a run may destroy.
    pub(crate) max_destroy_share: Share,
    /// The lease of the update that the run has begun, `None` if no update is begun.
    pub(crate) lease: Option<LeaseId>,
}

pub(crate) fn wish(bucket_type: i32, value: &str, subject_id: i64) -> Wish {
    Wish { bucket_type, value: value.to_owned(), subject_id }
}

pub(crate) fn request(wish: &Wish, source_type: SourceType, row: u64) -> ClaimRequest {
    ClaimRequest {
        bucket_type: BucketType(wish.bucket_type),
        value: wish.value.as_str().into(),
        subject: Some(Subject { subject_type: 4, id: wish.subject_id }),
        source: Some(Source { source_type, id: SourceId::from(row) }),
        user_data: None,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: LONG_AGO,
            table: BTreeMap::new(),
            store: MemoryStore::default(),
            rules: Rules { catalogue: Catalogue::default(), cells: [OWN, OTHER].into() },
            leases: 0,
            records_per_page: 1000,
            rows_per_page: 1000,
            max_destroy_share: Share::ALL,
            lease: None,
        }
    }

    pub(crate) fn begin(&mut self, cell: CellId, update: UpdateRequest) -> Result<LeaseId, Rejection> {
        self.leases += 1;
        let lease = LeaseId(Uuid::from_u128(self.leases << 32));
        let begin = self.rules.begin(cell, update, None, lease)?;
        let reply = Command::Begin(begin).apply(&mut self.store, Timestamp::from_micros(self.now)).unwrap()?;
        let Reply::Begun(begun) = reply else { unreachable!("a begin is answered as one") };
        Ok(begun.lease)
    }

    pub(crate) fn settle(&mut self, cell: CellId, lease: LeaseId, outcome: Outcome) {
        let settle = self.rules.settle(cell, &lease.to_string(), outcome).unwrap();
        Command::Settle(settle).apply(&mut self.store, Timestamp::from_micros(self.now)).unwrap().unwrap();
    }

    /// Begins an update of a cell and commits it.
    pub(crate) fn update(&mut self, cell: CellId, update: UpdateRequest) -> Result<(), Rejection> {
        let lease = self.begin(cell, update)?;
        self.settle(cell, lease, Outcome::Committed);
        Ok(())
    }

    pub(crate) fn claim(&mut self, cell: CellId, source_type: SourceType, row: u64, wish: &Wish) {
        let creates = vec![request(wish, source_type, row)];
        self.update(cell, UpdateRequest { creates, destroys: vec![] }).unwrap();
    }

    /// Makes a claim like [`claim`](Self::claim), with `suffix` at the end of the value. The suffix
    /// has characters that only an earlier version of the service allowed.
    pub(crate) fn claim_of_an_earlier_version(&mut self, row: u64, wish: &Wish, suffix: &str) {
        self.claim(OWN, TABLE, row, wish);
        let key = self.rules.catalogue.bucket(BucketType(wish.bucket_type), wish.value.as_str().into()).unwrap().key;
        let mut claim = Store::claim(&self.store, &key).unwrap().unwrap();
        let Claim { state: ClaimState::Active(record), .. } = &mut claim else { unreachable!("it was committed") };
        record.spelling = format!("{}{suffix}", record.spelling).into();
        let renamed = BucketKey { canonical: format!("{}{suffix}", key.canonical).into(), ..key.clone() };
        let claims = vec![(key, None), (renamed, Some(claim))];
        self.store.write(Changes { claims, ..Changes::default() }).unwrap();
    }

    pub(crate) fn row(&mut self, id: u64, wishes: &[Wish]) {
        let row = Row { updated_at: LONG_AGO, in_scope: true, wishes: wishes.to_vec() };
        self.table.insert(id, row);
    }

    pub(crate) fn state(&self) -> State {
        self.store.state().unwrap()
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.rules.catalogue
    }

    /// Returns the cell and the row that have a bucket's claim, `None` if the bucket has none.
    pub(crate) fn holder(&self, bucket_type: i32, value: &str) -> Option<(CellId, u64)> {
        let key = self.rules.catalogue.bucket(BucketType(bucket_type), value.into()).unwrap().key;
        let claim: Claim = Store::claim(&self.store, &key).unwrap()?;
        Some((claim.owner, number(&claim.record().source.id).unwrap()))
    }

    pub(crate) fn settings(&self) -> VerifySettings {
        VerifySettings {
            source_type: TABLE,
            bucket_types: [4, 5, 6].map(BucketType).into(),
            recent_within_micros: RECENT,
            rows_per_page: self.rows_per_page,
            dry_run: false,
            max_destroy_share: self.max_destroy_share,
            hash_seed: 7,
        }
    }

    fn records(&self, after: &SourceId, upto: &SourceId, settings: &VerifySettings) -> (Records, bool) {
        let types = settings.bucket_types.clone();
        let query = RecordQuery::parse(OWN, settings.source_type, types, after.clone(), upto.clone()).unwrap();
        let mut list = query.list();
        let mut page = loop {
            if let Some(page) = list.add(self.store.records(list.scan()).unwrap()).unwrap() {
                break page;
            }
        };
        cut(&mut page, self.records_per_page);
        let mut records = Records::new(Timestamp::from_micros(self.now));
        for RecordRow { key, claim } in &page.records {
            let record = claim.record();
            records.record(RecordRef {
                source_id: record.source.id.as_bytes(),
                bucket_type: key.bucket_type.0,
                value: &record.spelling,
                subject_type: record.subject.subject_type,
                subject_id: record.subject.id,
                updated_at: record.updated_at,
                held: claim.hold().is_some(),
            });
        }
        (records, page.truncated)
    }

    fn rows<'a>(&self, rows: impl Iterator<Item = (&'a u64, &'a Row)>) -> Rows {
        let mut page = Rows::new(Timestamp::from_micros(self.now));
        for (id, row) in rows {
            page.row(&id.to_be_bytes(), Some(Timestamp::from_micros(row.updated_at)));
            for wish in row.wishes.iter().filter(|_| row.in_scope) {
                page.claim(wish.bucket_type, &wish.value, 4, wish.subject_id);
            }
        }
        page
    }

    /// Returns the rows in scope after the source id `after` and up to `upto`.
    fn listed(&self, after: &SourceId, upto: &SourceId) -> impl Iterator<Item = (&u64, &Row)> {
        let after = number(after).map_or(Bound::Unbounded, Bound::Excluded);
        let upto = number(upto).map_or(Bound::Unbounded, Bound::Included);
        self.table.range((after, upto)).filter(|(_, row)| row.in_scope)
    }

    /// Takes one step of a run as a host does. Returns false if the run is over.
    pub(crate) fn take(&mut self, run: &mut Verification, settings: &VerifySettings) -> bool {
        let phase = run.phase();
        let is_going_on = self.take_step(run, settings);
        edges(phase, run.phase(), false);
        is_going_on
    }

    fn take_step(&mut self, run: &mut Verification, settings: &VerifySettings) -> bool {
        match run.step().clone() {
            VerifyStep::FindBound { after, rows } => {
                let listed = self.listed(&after, &SourceId::default()).nth(rows - 1);
                run.bound(listed.map(|(id, _)| SourceId::from(*id))).unwrap();
            }
            VerifyStep::ListRecords { after, upto } => {
                let (records, truncated) = self.records(&after, &upto, settings);
                run.records(records, truncated).unwrap();
            }
            VerifyStep::ReadRows { after, upto } => {
                let rows = self.rows(self.listed(&after, &upto));
                run.rows(rows).unwrap();
            }
            VerifyStep::ReadAgain { ids } => {
                let rows = self.rows(ids.iter().filter_map(|id| self.table.get_key_value(&number(id)?)));
                run.rows(rows).unwrap();
            }
            VerifyStep::Begin(update) => {
                assert!(!settings.dry_run, "a dry run sends nothing");
                let begun = self.begin(OWN, update);
                self.lease = begun.as_ref().ok().copied();
                let refused = |rejection| UpdateResult::Refused(offences(&rejection));
                run.updated(begun.map_or_else(refused, |_| UpdateResult::Begun)).unwrap();
            }
            VerifyStep::Commit => self.settle_begun(run, Outcome::Committed),
            VerifyStep::RollBack => self.settle_begun(run, Outcome::RolledBack),
            VerifyStep::PageDone => run.proceed().unwrap(),
            VerifyStep::Refused(_) | VerifyStep::Done => return false,
        }
        true
    }

    fn settle_begun(&mut self, run: &mut Verification, outcome: Outcome) {
        let lease = self.lease.take().unwrap();
        self.settle(OWN, lease, outcome);
        run.updated(UpdateResult::Settled).unwrap();
    }

    /// Makes one run from its beginning to its end.
    pub(crate) fn verify(&mut self) -> Verified {
        self.verify_with(&self.settings(), None)
    }

    pub(crate) fn verify_with(&mut self, settings: &VerifySettings, checkpoint: Option<Checkpoint>) -> Verified {
        let mut run = Verification::new(settings.clone(), self.catalogue().clone(), checkpoint);
        while self.take(&mut run, settings) {}
        let refusal = if let VerifyStep::Refused(refusal) = run.step() { Some(*refusal) } else { None };
        Verified { refusal, report: run.report().clone(), findings: run.take_findings(), checkpoint: run.checkpoint() }
    }

    /// Drops a run after this many pages, and makes a second run from the last checkpoint.
    pub(crate) fn verify_dropped(&mut self, pages: u64) {
        let settings = self.settings();
        let mut run = Verification::new(settings.clone(), self.catalogue().clone(), None);
        while *run.step() != VerifyStep::PageDone || run.report().pages < pages {
            if !self.take(&mut run, &settings) {
                return;
            }
        }
        self.verify_with(&settings, Some(run.checkpoint()));
    }

    /// Makes a run in pieces: each piece stops after this many pages, and the next piece goes on
    /// from the checkpoint.
    pub(crate) fn verify_in_pieces(&mut self, pages: u64) {
        let settings = self.settings();
        let mut checkpoint = None;
        loop {
            let mut run = Verification::new(settings.clone(), self.catalogue().clone(), checkpoint);
            let mut is_stopped = false;
            loop {
                if *run.step() == VerifyStep::PageDone && run.report().pages >= pages {
                    run.stop().unwrap();
                    is_stopped = true;
                } else if !self.take(&mut run, &settings) {
                    break;
                }
            }
            if !is_stopped {
                return;
            }
            checkpoint = Some(run.checkpoint());
        }
    }
}

pub(crate) struct Verified {
    /// The refusal at which the run ended, `None` if the run came to its end.
    pub(crate) refusal: Option<TooManyDestroys>,
    pub(crate) report: Report,
    pub(crate) findings: Vec<Finding>,
    pub(crate) checkpoint: Checkpoint,
}

/// Returns the row id that a source id stands for, `None` for the empty source id.
pub(crate) fn number(id: &SourceId) -> Option<u64> {
    id.as_bytes().try_into().ok().map(u64::from_be_bytes)
}

/// Cuts a page of records after about `at` records, at the end of a source id, as a server may.
fn cut(page: &mut RecordPage, at: usize) {
    let id = |row: &RecordRow| row.claim.record().source.id.clone();
    let end = (at..page.records.len()).find(|end| id(&page.records[*end]) != id(&page.records[end - 1]));
    if let Some(end) = end {
        page.records.truncate(end);
        page.truncated = true;
    }
}

fn offences(rejection: &Rejection) -> Vec<(leasehold_core::rejection::Place, Reason)> {
    rejection.offences().iter().filter_map(|offence| Some((offence.place?, offence.reason))).collect()
}
