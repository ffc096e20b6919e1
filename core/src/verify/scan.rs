//! The progress of a run of verification: the scan of the whole table, then the spans that the run
//! compares once more (V05).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::claim::SourceId;

/// The most spans that a run notes to compare once more. Beyond this number, the last span grows
/// over the rows in between. A span takes the memory of two keys.
const MAX_SPANS: usize = 1000;

/// The progress of the scan of the whole table: the last source id that is done, or the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scan {
    After(SourceId),
    Finished,
}

/// The rows after the source id `after` and up to `upto`. An empty `upto` means the end of the
/// table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Span {
    pub(super) after: SourceId,
    pub(super) upto: SourceId,
}

impl Span {
    /// Returns true if no row can lie between the end of the span and `after`.
    fn reaches(&self, after: &SourceId) -> bool {
        self.upto.is_empty() || self.upto >= *after
    }

    fn grow(&mut self, upto: &SourceId) {
        if !self.upto.is_empty() && (upto.is_empty() || *upto > self.upto) {
            self.upto = upto.clone();
        }
    }
}

/// The progress of a run: the source id up to which every correction is sent, and the spans to
/// compare once more.
#[derive(Clone, Debug, Hash)]
pub(super) struct Progress {
    scan: Scan,
    /// The spans to compare once more, in order and without overlaps. So a host goes back once and
    /// then only forwards.
    again: VecDeque<Span>,
}

impl Progress {
    pub(super) fn new(scan: Scan, again: Vec<Span>) -> Self {
        Self { scan, again: again.into() }
    }

    /// Returns the progress as a checkpoint stores it: the scan, and the spans to compare once
    /// more.
    pub(super) fn parts(&self) -> (Scan, Vec<Span>) {
        (self.scan.clone(), self.again.iter().cloned().collect())
    }

    /// Returns the span to compare next, `None` if no span is left to compare.
    pub(super) fn span(&self) -> Option<Span> {
        match &self.scan {
            Scan::After(after) => Some(Span { after: after.clone(), upto: SourceId::default() }),
            Scan::Finished => self.again.front().cloned(),
        }
    }

    /// Returns the source id up to which everything is compared and sent, `None` once the scan of
    /// the whole table is over.
    pub(super) fn scanned_upto(&self) -> Option<&SourceId> {
        match &self.scan {
            Scan::After(after) => Some(after),
            Scan::Finished => None,
        }
    }

    /// Notes that everything up to the source id `rest` is compared and sent.
    pub(super) fn sent_before(&mut self, rest: SourceId) {
        match (&mut self.scan, self.again.front_mut()) {
            (Scan::After(after), _) => *after = rest,
            (Scan::Finished, Some(span)) => span.after = rest,
            (Scan::Finished, None) => {}
        }
    }

    /// Notes that everything up to the end of a range, `upto`, is compared and sent.
    pub(super) fn sent_upto(&mut self, upto: &SourceId) {
        if self.span().is_none_or(|span| span.upto != *upto) {
            self.sent_before(upto.clone());
        } else if self.scanned_upto().is_some() {
            self.scan = Scan::Finished;
        } else {
            self.again.pop_front();
        }
    }

    /// During the scan of the whole table, notes the rows after the last sent source id and up to
    /// `upto` to be compared once more. While the noted spans are compared, does nothing: no row is
    /// compared a third time.
    pub(super) fn note_span(&mut self, upto: &SourceId) {
        let Scan::After(after) = &self.scan else { return };
        let is_full = self.again.len() >= MAX_SPANS;
        match self.again.back_mut() {
            Some(last) if is_full || last.reaches(after) => last.grow(upto),
            _ => self.again.push_back(Span { after: after.clone(), upto: upto.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn scanned(again: &[(u64, u64)]) -> (Scan, Vec<Span>) {
        (Scan::Finished, again.iter().map(|(after, upto)| span(*after, *upto)).collect())
    }

    /// Returns a source id. 0 stands for the empty id, which sets no bound.
    fn id(id: u64) -> SourceId {
        if id == 0 { SourceId::default() } else { id.into() }
    }

    fn span(after: u64, upto: u64) -> Span {
        Span { after: id(after), upto: id(upto) }
    }

    /// Scans pages that end at these ids; 0 means the end of the table. Pages marked with `true`
    /// are to be compared once more.
    fn scan(pages: &[(u64, bool)]) -> Progress {
        let mut progress = Progress::new(Scan::After(id(0)), Vec::new());
        for (upto, again) in pages {
            if *again {
                progress.note_span(&id(*upto));
            }
            progress.sent_upto(&id(*upto));
        }
        progress
    }

    #[test]
    fn neighbouring_pages_make_one_span() {
        let pages = [(10, true), (20, true), (30, false), (40, true), (0, true)];
        assert_eq!(scan(&pages).parts(), scanned(&[(0, 20), (30, 0)]));
        assert_eq!(scan(&[(10, false), (0, false)]).span(), None);
    }

    #[test]
    fn a_page_with_unsent_creates_is_marked_together_with_the_next() {
        let mut progress = Progress::new(Scan::After(id(10)), Vec::new());
        progress.note_span(&id(20));
        progress.sent_before(id(15));
        progress.note_span(&id(30));
        assert_eq!(progress.parts(), (Scan::After(id(15)), vec![span(10, 30)]));
        // The pages of a resumed run may end at other ids than those of the run before.
        progress.note_span(&id(25));
        assert_eq!(progress.parts().1, [span(10, 30)]);
    }

    #[test]
    fn the_second_look_goes_from_span_to_span() {
        let mut progress = scan(&[(10, true), (20, false), (30, true), (0, false)]);
        assert_eq!(progress.scanned_upto(), None);
        progress.sent_upto(&id(5));
        assert_eq!(progress.span(), Some(span(5, 10)));
        progress.sent_upto(&id(10));
        assert_eq!(progress.span(), Some(span(20, 30)));
        progress.sent_before(id(25));
        assert_eq!(progress.span(), Some(span(25, 30)));
        progress.sent_upto(&id(30));
        assert_eq!(progress.span(), None);
    }

    #[test]
    fn the_number_of_spans_is_bounded_and_no_marked_page_is_left_out() {
        let pages = (1..=3000).map(|page| (page * 10, page % 2 == 0));
        let (_, again) = scan(&pages.collect::<Vec<_>>()).parts();
        assert_eq!((again.len(), again.first()), (MAX_SPANS, Some(&span(10, 20))));
        assert_eq!(again.last(), Some(&span(19_990, 30_000)));
    }
}
