//! A small disk for a test, which can become full.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

const MIB: u64 = 1024 * 1024;

/// A tmpfs, mounted by a shell in its own mount namespace. The test reaches the files through
/// `/proc/PID/root` of that shell.
pub struct Disk {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    path: PathBuf,
    mount: TempDir,
}

impl Disk {
    /// Mounts a disk of this size.
    ///
    /// # Errors
    /// No mount namespace can be made, or the disk can't be mounted.
    pub fn new(mib: u64) -> Result<Self> {
        let mount = TempDir::new()?;
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-e"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().context("no mount namespace can be made")?;
        let (input, output) = (shell.stdin.take(), shell.stdout.take());
        let (input, output) = (input.context("no input")?, BufReader::new(output.context("no output")?));
        let outside = PathBuf::from(format!("/proc/{}/root", shell.id()));
        let path = outside.join(mount.path().strip_prefix("/").context("the mount point has no absolute path")?);
        let mut disk = Self { shell, input, output, path, mount };
        disk.mount(&format!("size={mib}m tmpfs"))?;
        Ok(disk)
    }

    fn mount(&mut self, options: &str) -> Result<()> {
        writeln!(self.input, "mount -t tmpfs -o {options} '{}'; echo done", self.mount.path().display())?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line == "done\n", "the disk can't be mounted with {options}");
        Ok(())
    }

    /// Changes the size of the disk.
    ///
    /// # Errors
    /// The disk can't be mounted again.
    pub fn resize(&mut self, mib: u64) -> Result<()> {
        self.mount(&format!("remount,size={mib}m tmpfs"))
    }

    /// Returns the path of the disk's root.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file until at most `free_mib` MiB of the disk are free.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn fill(&self, free_mib: u64) -> Result<()> {
        let mut file = std::fs::File::create(self.filler())?;
        while self.free_mib()? > free_mib {
            file.write_all(&[1; MIB as usize])?;
        }
        Ok(())
    }

    /// Writes a file until the disk has no room for a further byte.
    ///
    /// # Errors
    /// The file can't be written for another reason.
    pub fn fill_up(&self) -> Result<()> {
        let mut file = std::fs::File::create(self.filler())?;
        loop {
            match file.write_all(&[1; 4096]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).context("the disk can't be filled"),
            }
        }
    }

    /// Removes the file that [`fill`](Self::fill) has written.
    ///
    /// # Errors
    /// There is no such file.
    pub fn empty(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    fn free_mib(&self) -> Result<u64> {
        let disk = nix::sys::statvfs::statvfs(self.path())?;
        Ok(disk.blocks_available() * disk.fragment_size() / MIB)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The kernel unmounts the tmpfs when the last process of the mount namespace has ended.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
