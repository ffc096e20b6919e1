//! A call that attends to its ask, so that a grant reaches its caller.

use std::sync::Arc;

use leasehold_core::lock::AskId;
use leasehold_core::session::SessionId;
use tokio::sync::watch;

use super::host::LockHost;
use super::news::AskNews;

/// The attendance of one call to its ask. The call attends before it sends its acquire to the
/// committer, so it misses no grant.
///
/// If this value is dropped before [`finish`](Self::finish), the caller may not know what became of
/// the ask. If no other call attends within [`TAKE_UP`](super::TAKE_UP), the host makes the ask
/// leave (K09).
pub struct Attendance {
    host: Arc<LockHost>,
    ask: AskId,
    session: SessionId,
    news: Option<watch::Receiver<AskNews>>,
    is_finished: bool,
}

impl Attendance {
    /// Without `news` the call attends to nothing.
    pub(super) fn new(
        host: Arc<LockHost>,
        ask: AskId,
        session: SessionId,
        news: Option<watch::Receiver<AskNews>>,
    ) -> Self {
        Self { host, ask, session, news, is_finished: false }
    }

    /// Waits for news of the ask. Waits for ever if the host has stopped.
    pub async fn news(&mut self) -> AskNews {
        self.wait_for(|news| *news != AskNews::None).await
    }

    /// Waits until the ask has ended. Waits for ever if the host has stopped.
    pub async fn over(&mut self) {
        self.wait_for(|news| *news == AskNews::Over).await;
    }

    async fn wait_for(&mut self, is_awaited: impl FnMut(&AskNews) -> bool) -> AskNews {
        let Some(news) = &mut self.news else { return std::future::pending().await };
        let found = news.wait_for(is_awaited).await.ok().map(|news| *news);
        match found {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    /// Returns true if the call's acquire wrote the ask, false if the ask may have had another call.
    pub fn take_created(&self) -> bool {
        self.news.is_some() && self.host.take_created(self.ask)
    }

    /// Notes that a leave of the ask is decided from now on, until
    /// [`end_leave`](LockHost::end_leave): calls that would attend wait. Returns false, and notes
    /// nothing, if another call at this server attends to the ask, or has told its grant.
    pub fn begin_leave(&self) -> bool {
        self.host.begin_leave(self.ask)
    }

    /// Notes that the store has this server as the one that attends to the ask.
    pub fn own(&self) {
        self.host.own(self.ask);
    }

    /// Notes that the ask waits. If the store is shared, another server may write its grant.
    pub fn wait_for_grant(&self) {
        self.host.wait_for_grant(self.ask);
    }

    /// Marks the caller as told that the ask is granted.
    pub fn take_up(&mut self) {
        self.finish();
        self.host.take_up(self.ask);
    }

    /// Marks the caller as told that there is no ask.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        // The receiver goes first, so that the host counts only the calls that still attend.
        if self.news.take().is_some() {
            self.host.end_attendance(self.ask, self.session, self.is_finished);
        }
    }
}
