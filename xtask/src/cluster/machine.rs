//! Machines of a network on this one: namespaces of Linux, joined by a bridge (network_namespaces(7)). A machine may lose
//! its power, its cable, or the way to another one.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The prefix of the names of namespaces and bridges, before the id of the process that made them.
const PREFIX: &str = "lh";

/// An address of Ethernet that no device has: it is locally administered (RFC 9542, section 2.1).
const NOBODY: &str = "02:00:00:00:00:00";

/// The size of a machine's disk. Its memory is taken when it is written.
const DISK_MIB: u32 = 2048;

/// A network of machines, which this process can reach too. Dropping it removes the bridge.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    prefix: String,
}

impl Network {
    /// Makes a network. Removes those of processes that have ended without doing so.
    ///
    /// # Errors
    /// The process is not root, or `ip` is absent.
    pub fn start() -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "a network of machines needs root");
        remove_orphans()?;
        let id = std::process::id();
        // The addresses of two networks at once differ by the ids of their processes.
        let prefix = format!("10.{}.{}", 64 + (id >> 8) % 128, id % 256);
        let network = Self { bridge: format!("{PREFIX}{id}-0"), prefix };
        ip(&["link", "add", &network.bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", network.address(254)), "dev", &network.bridge])?;
        ip(&["link", "set", &network.bridge, "up"])?;
        Ok(network)
    }

    /// Returns the address of the machine with this number.
    #[must_use]
    pub fn address(&self, number: u8) -> String {
        format!("{}.{number}", self.prefix)
    }

    /// Adds a machine with a number from 1 to 253.
    ///
    /// # Errors
    /// The network has a machine of this number.
    pub fn machine(&self, number: u8) -> Result<Machine> {
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        ip(&["netns", "add", &name])?;
        let machine = Machine { name, address: self.address(number) };
        let inside = ["link", "add", &machine.name, "type", "veth", "peer", "name", "eth0", "netns", &machine.name];
        ip(&inside)?;
        ip(&["link", "set", &machine.name, "master", &self.bridge, "up"])?;
        let here = ["-n", &machine.name];
        ip(&[&here[..], &["addr", "add", &format!("{}/24", machine.address), "dev", "eth0"]].concat())?;
        for device in ["lo", "eth0"] {
            ip(&[&here[..], &["link", "set", device, "up"]].concat())?;
        }
        Ok(machine)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        report(ip(&["link", "del", &self.bridge]));
    }
}

/// A machine of a network. Dropping it ends its processes and removes it.
#[derive(Debug)]
pub struct Machine {
    name: String,
    address: String,
}

impl Machine {
    /// Returns the address of the machine.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the name of the machine's namespace, for `ip netns exec`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Mounts a disk in memory, which can become full.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub(super) fn mount_disk(&self, directory: &Path) -> Result<()> {
        let options = format!("size={DISK_MIB}m,mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, &self.name]).arg(directory).status();
        ensure!(mounted.context("cannot start `mount`")?.success(), "no disk at `{}`", directory.display());
        Ok(())
    }

    /// Returns a command that runs a program on the machine.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program).stdin(Stdio::null());
        command
    }

    /// Starts a program as the user `postgres`, whose home is `home`. Its output goes to the file `log`.
    ///
    /// # Errors
    /// The file can't be written, or the program can't be started.
    pub fn start(&self, words: &[&str], home: &Path, log: &Path) -> Result<Child> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = self.command("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).args(words);
        command.env("HOME", home).env("PGPASSFILE", home.join("pgpass")).current_dir(home);
        command.stdout(file.try_clone()?).stderr(file);
        command.spawn().with_context(|| format!("cannot start `{}`", words.join(" ")))
    }

    /// Sends a signal to all processes of the machine.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        for pid in self.processes()? {
            signal_one(pid, signal)?;
        }
        Ok(())
    }

    /// Sends a signal to the processes of the machine whose command lines have a text. Returns their number.
    ///
    /// # Errors
    /// The operating system refuses it, or there is no such process.
    pub fn signal_those(&self, text: &str, signal: Signal) -> Result<usize> {
        let mut count = 0;
        for pid in self.processes()? {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).replace('\0', " ").contains(text) {
                signal_one(pid, signal)?;
                count += 1;
            }
        }
        ensure!(count > 0, "no process of `{}` has `{text}` in its command line", self.name);
        Ok(count)
    }

    /// Takes the machine's power: no process runs, and no packet comes or goes. Files keep what was written and not synced.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn power_off(&self) -> Result<()> {
        self.unplug()?;
        self.signal(Signal::SIGSTOP)
    }

    /// True if all processes of the machine are suspended, as without power.
    ///
    /// # Errors
    /// The operating system refuses to tell it.
    pub fn is_off(&self) -> Result<bool> {
        let state = |pid: &Pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state is the letter after the name of the program (proc_pid_stat(5)).
        let is_stopped = |text: &str| text.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'));
        Ok(self.processes()?.iter().all(|pid| is_stopped(&state(pid))))
    }

    /// Gives the machine its power back. Its processes are gone, and are started again by the caller.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn power_on(&self) -> Result<()> {
        self.end()?;
        self.plug()
    }

    /// Takes the machine's cable out.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn unplug(&self) -> Result<()> {
        ip(&["link", "set", &self.name, "down"])
    }

    /// Puts the machine's cable in again.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn plug(&self) -> Result<()> {
        ip(&["link", "set", &self.name, "up"])
    }

    /// Loses all packets from this machine to another one in silence: they go to an address that no machine has. A route
    /// that drops them would let the sender know.
    ///
    /// # Errors
    /// The machine is gone.
    pub fn cut(&self, other: &Machine) -> Result<()> {
        let entry = ["neigh", "replace", &other.address, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0"];
        ip(&[&["-n", &self.name], &entry[..]].concat())
    }

    /// Lets packets from this machine reach another one again.
    ///
    /// # Errors
    /// They do so already.
    pub fn mend(&self, other: &Machine) -> Result<()> {
        ip(&["-n", &self.name, "neigh", "del", &other.address, "dev", "eth0"])
    }

    fn processes(&self) -> Result<Vec<Pid>> {
        let output = Command::new("ip").args(["netns", "pids", &self.name]).output().context("cannot start `ip`")?;
        let ids =
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>();
        Ok(ids?.into_iter().map(Pid::from_raw).collect())
    }

    /// Kills all processes until none is left. A process may have started another one meanwhile.
    fn end(&self) -> Result<()> {
        while !self.processes()?.is_empty() {
            self.signal(Signal::SIGKILL)?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        report(self.end());
        // Unsent packets keep a namespace for minutes, and so would keep its device.
        report(ip(&["link", "del", &self.name]));
        report(ip(&["netns", "del", &self.name]));
    }
}

/// Sends a signal to a process, unless it has ended.
fn signal_one(pid: Pid, signal: Signal) -> Result<()> {
    match kill(pid, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot signal process {pid}")),
    }
}

/// Removes the disk of a machine. Files that are still open go with their processes.
pub(super) fn unmount(directory: &Path) -> Result<()> {
    let unmounted = Command::new("umount").arg("--lazy").arg(directory).status().context("cannot start `umount`")?;
    ensure!(unmounted.success(), "`{}` stays mounted", directory.display());
    Ok(())
}

/// Removes the namespaces, disks and bridges of processes that have ended. Another process may do so at the same time.
fn remove_orphans() -> Result<()> {
    for mount in std::fs::read_to_string("/proc/mounts")?.lines() {
        let mut words = mount.split(' ');
        if let (Some(name), Some(directory)) = (words.next(), words.next())
            && owner(name).is_some_and(|id| !is_running(id))
        {
            report(unmount(Path::new(directory)));
        }
    }
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten();
    let devices = std::fs::read_dir("/sys/class/net")?;
    for (entry, is_namespace) in namespaces.map(|entry| (entry, true)).chain(devices.map(|entry| (entry, false))) {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if owner(&name).is_none_or(is_running) {
            continue;
        }
        if is_namespace {
            drop(Machine { name, address: String::new() });
        } else {
            // The device of a machine leaves with its namespace.
            let _ = ip(&["link", "del", &name]);
        }
    }
    Ok(())
}

/// Returns the id of the process that made the machine, network or disk of this name; `None` if the name is another one.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn is_running(id: u32) -> bool {
    Path::new("/proc").join(id.to_string()).exists()
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).output().context("cannot start `ip`")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {}` failed: {}", words.join(" "), text.trim());
    Ok(())
}

fn report(done: Result<()>) {
    if let Err(error) = done {
        eprintln!("warning: {error:#}");
    }
}
