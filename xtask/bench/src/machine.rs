//! A description of the machine of a measurement, without which its figures mean little.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sysinfo::System;

/// The number of writes with a sync by which the disk is timed.
const SYNCS: usize = 101;

/// The machine's processor, memory, kernel and disk, and the date of the measurement.
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_bytes: u64,
    kernel: String,
    sync: Duration,
    date: String,
}

impl Machine {
    /// Returns the description of this machine. The time of a sync is measured on the disk of
    /// `directory`.
    ///
    /// # Errors
    /// The disk cannot be timed.
    pub(crate) fn here(directory: &Path) -> Result<Self> {
        let mut system = System::new().context("cannot look at the machine")?;
        system.refresh_cpu_all();
        system.refresh_memory();
        let cpu = system.cpus().first().map_or("unknown", |cpu| cpu.brand().trim());
        Ok(Self {
            cpu: cpu.to_owned(),
            cores: system.cpus().len(),
            memory_bytes: system.total_memory(),
            kernel: System::kernel_version().context("cannot tell the kernel")?,
            sync: median_sync(&directory.join("sync"))?,
            date: jiff::Timestamp::now().strftime("%F").to_string(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory_gib = self.memory_bytes >> 30;
        let Self { cpu, cores, kernel, sync, date, .. } = self;
        write!(formatter, "{cpu}, {cores} cores, {memory_gib} GiB, Linux {kernel}, {sync:.1?} to sync a write, {date}")
    }
}

/// Measures the median time of a small append to a file with a sync.
fn median_sync(path: &Path) -> Result<Duration> {
    let context = || format!("cannot time the disk with `{}`", path.display());
    let mut file = File::create(path).with_context(context)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&[0; 512]).with_context(context)?;
        file.sync_data().with_context(context)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times.get(SYNCS / 2).copied().with_context(context)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_machine_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::here(directory.path()).unwrap();
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && machine.sync > Duration::ZERO);
        assert!(machine.to_string().contains(&machine.kernel));
    }
}
