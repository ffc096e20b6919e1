//! The phases of a run of verification. [`table::VERIFICATION`](crate::table::VERIFICATION) lists
//! the edges between them as data.

/// A phase of a run of verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Pages are compared for the first time. The creates of each page are sent before the next
    /// page.
    Scan,
    /// Pages are compared as in [`Scan`](Self::Scan), but creates wait until they fill an update:
    /// most claims of the last page are missing, so the run is a backfill (V08). In other runs, a
    /// create would wait too long, and its row might change meanwhile.
    Fill,
    /// The whole table has been compared. The run sends all planned corrections, and also the
    /// deferred destroys if it has noted no span to compare again.
    Drain,
    /// The noted spans are compared a second time, because the run had to drop some of their
    /// deferred creates. A create that is refused in this phase is not deferred again.
    Rescan,
    /// The noted spans are compared as in [`Rescan`](Self::Rescan), but creates wait until they
    /// fill an update.
    Refill,
    /// The table or a noted span is compared to its end, and refused creates are no longer
    /// deferred. At the end of the last span, the deferred creates are tried for the last time.
    LastTry,
    /// The host has stopped the run. The creates that wait to fill an update are sent.
    Stop,
    /// The run is over, or its stop is complete.
    Done,
}

/// An event that can move a run of verification to another phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseEvent {
    /// A page was compared, more than half of its rows' claims are missing, and more pages follow.
    MostMissing,
    /// A page was compared that does not count as mostly missing: at most half of its rows' claims
    /// are missing, or no page follows.
    MostPresent,
    /// The last page of the table or of a noted span is done.
    LastPage,
    /// A noted span is to be compared a second time.
    SpanLeft,
    /// Deferred creates remain; the run tries them for the last time.
    CreatesLeft,
    /// The host has stopped the run.
    Stopped,
    /// Every planned and deferred correction is sent.
    NothingLeft,
}

impl Phase {
    /// Returns the phase after an event, `None` if the event leaves the phase as it is.
    pub const fn next(self, event: PhaseEvent) -> Option<Self> {
        use PhaseEvent::{CreatesLeft, LastPage, MostMissing, MostPresent, NothingLeft, SpanLeft, Stopped};
        Some(match (self, event) {
            (Self::Scan, MostMissing) => Self::Fill,
            (Self::Fill, MostPresent) => Self::Scan,
            (Self::Rescan, MostMissing) => Self::Refill,
            (Self::Refill, MostPresent) => Self::Rescan,
            // At the last page of a span, creates never wait to fill an update. So a run in `Fill`
            // or `Refill` is back in `Scan` or `Rescan` when the last page is done.
            (Self::Scan, LastPage) => Self::Drain,
            (Self::Rescan, LastPage) | (Self::Drain, CreatesLeft) => Self::LastTry,
            (Self::Drain | Self::LastTry, SpanLeft) => Self::Rescan,
            (Self::Scan | Self::Fill | Self::Rescan | Self::Refill, Stopped) => Self::Stop,
            (Self::Drain | Self::LastTry | Self::Stop, NothingLeft) => Self::Done,
            _ => return None,
        })
    }

    /// Returns true if creates wait in this phase until they fill an update.
    pub(super) const fn fills_updates(self) -> bool {
        matches!(self, Self::Fill | Self::Refill)
    }

    /// Returns true if every page of the table or of the noted span has been compared.
    pub(super) const fn is_compared(self) -> bool {
        matches!(self, Self::Drain | Self::LastTry | Self::Done)
    }
}
