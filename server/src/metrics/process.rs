//! The metrics of the process, under the names that Prometheus' own client libraries give them.
//! They are read from the operating system at each scrape.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeVal;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The metrics of this process. A value that the operating system does not provide is left out.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    /// The start of the process, in seconds since 1970.
    started: f64,
}

impl Default for ProcessCollector {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: started.as_secs_f64() }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = Encoder(encoder);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        encoder.cpu_seconds()?;
        encoder.gauge("process_start_time", "Start of the process since 1970", Some(Unit::Seconds), self.started)?;
        let resident = field(&status, "VmRSS:").map(kib);
        encoder.bytes("process_resident_memory", "Resident memory of the process", resident)?;
        let size = field(&status, "VmSize:").map(kib);
        encoder.bytes("process_virtual_memory", "Virtual memory of the process", size)?;
        encoder.count("process_threads", "Threads of the process", field(&status, "Threads:"))?;
        encoder.count("process_open_fds", "Open file descriptors of the process", open_descriptors())?;
        let limit = getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft);
        encoder.count("process_max_fds", "Most file descriptors that the process may open", limit)
    }
}

struct Encoder<'a>(DescriptorEncoder<'a>);

impl Encoder<'_> {
    fn cpu_seconds(&mut self) -> fmt::Result {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Ok(()) };
        let counter = ConstCounter::new(seconds(usage.user_time()) + seconds(usage.system_time()));
        let help = "CPU time of the process, in user and system mode";
        let metric = self.0.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), counter.metric_type())?;
        counter.encode(metric)
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        let metric = self.0.encode_descriptor(name, help, unit.as_ref(), gauge.metric_type())?;
        gauge.encode(metric)
    }

    fn bytes(&mut self, name: &str, help: &str, bytes: Option<u64>) -> fmt::Result {
        bytes.map_or(Ok(()), |bytes| self.gauge(name, help, Some(Unit::Bytes), bytes as f64))
    }

    fn count(&mut self, name: &str, help: &str, count: Option<u64>) -> fmt::Result {
        count.map_or(Ok(()), |count| self.gauge(name, help, None, count as f64))
    }
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

/// Returns the number after this name in `/proc/self/status` (proc_pid_status(5)).
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Converts a number of `/proc/self/status` to bytes. Its unit is written `kB`, but means KiB.
fn kib(count: u64) -> u64 {
    count.saturating_mul(1024)
}

fn open_descriptors() -> Option<u64> {
    // The read of the directory itself has one descriptor open, which does not count.
    std::fs::read_dir("/proc/self/fd").ok().map(|entries| (entries.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "Name:\tleasehold\nVmRSSes:\t1 kB\nVmRSS:\t   20480 kB\nThreads:\t9\n";
        assert_eq!(
            [field(status, "VmRSS:"), field(status, "Threads:"), field(status, "VmSize:")],
            [Some(20_480), Some(9), None]
        );
    }
}
