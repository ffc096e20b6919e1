//! The phases of a run. The edges between them are data:
//! [`table::VERIFICATION`](crate::table::VERIFICATION).

/// A phase of a run of verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Pages are compared for the first time, and each page's creates are sent with the page.
    Scan,
    /// Pages are compared as in [`Scan`](Self::Scan), but creates wait until they fill an update,
    /// since most of the last page's claims are missing: the run is a backfill (V08). In other runs
    /// a create would wait long, and its row would have been read long before it is sent.
    Fill,
    /// The table is compared. Everything planned is sent, then the deferred destroys.
    Drain,
    /// Spans are compared a second time, since more creates were deferred in them than are kept.
    /// Creates that are refused now have nothing to wait for.
    Rescan,
    /// Spans are compared as in [`Rescan`](Self::Rescan), but creates wait until they fill an
    /// update.
    Refill,
    /// Deferred creates are tried for the last time.
    LastTry,
    /// The host stopped the run. Creates that wait to fill an update are sent.
    Stop,
    /// The run is over.
    Done,
}

/// An event that can move a run to another phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseEvent {
    /// A page was compared, most of its claims are missing, and more pages follow.
    MostMissing,
    /// Another page was compared.
    MostPresent,
    /// The last page of the table or of a span is done.
    LastPage,
    /// A span is to be compared a second time.
    SpanLeft,
    /// Deferred creates are to be tried for the last time.
    CreatesLeft,
    /// The host stops the run.
    Stopped,
    /// Everything planned and deferred is sent.
    NothingLeft,
}

impl Phase {
    /// The phase after an event, `None` if the event changes nothing.
    pub const fn next(self, event: PhaseEvent) -> Option<Self> {
        use PhaseEvent::{CreatesLeft, LastPage, MostMissing, MostPresent, NothingLeft, SpanLeft, Stopped};
        Some(match (self, event) {
            (Self::Scan, MostMissing) => Self::Fill,
            (Self::Fill, MostPresent) => Self::Scan,
            (Self::Rescan, MostMissing) => Self::Refill,
            (Self::Refill, MostPresent) => Self::Rescan,
            // The last page of a range never fills updates, so `Fill` and `Refill` don't get here.
            (Self::Scan, LastPage) => Self::Drain,
            (Self::Rescan, LastPage) | (Self::Drain, CreatesLeft) => Self::LastTry,
            (Self::Drain | Self::LastTry, SpanLeft) => Self::Rescan,
            (Self::Scan | Self::Fill | Self::Rescan | Self::Refill, Stopped) => Self::Stop,
            (Self::Drain | Self::LastTry | Self::Stop, NothingLeft) => Self::Done,
            _ => return None,
        })
    }

    /// Returns true if creates wait until they fill an update.
    pub(super) const fn fills_updates(self) -> bool {
        matches!(self, Self::Fill | Self::Refill)
    }

    /// Returns true if the table or a span is compared to its end.
    pub(super) const fn is_compared(self) -> bool {
        matches!(self, Self::Drain | Self::LastTry | Self::Done)
    }
}
