//! A clock that runs on while the machine sleeps. What other servers may end meanwhile must grow old in this time too: a
//! vouch for sessions (K22), and the proof that reads are current (B30).

use std::time::Duration;

/// A moment on that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Awake(Duration);

impl Awake {
    /// Returns the present moment; `None` if the clock can't be read.
    #[cfg(target_os = "linux")]
    pub fn now() -> Option<Self> {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok()?;
        Some(Self(Duration::from(time)))
    }

    /// Returns the present moment. This clock may stand still while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Option<Self> {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Some(Self(START.get_or_init(std::time::Instant::now).elapsed()))
    }

    /// Returns the moment this long ago.
    #[cfg(test)]
    pub(crate) fn ago(time: Duration) -> Self {
        Self(Self::now().unwrap().0.saturating_sub(time))
    }

    /// Returns the time since this moment; `None` if the clock can't be read.
    pub(crate) fn elapsed(self) -> Option<Duration> {
        Some(Self::now()?.0.saturating_sub(self.0))
    }
}
