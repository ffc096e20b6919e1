//! Reads the files that the configuration names, at the start and at each reload.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// The most bytes of a file that the configuration names: more than certificates and revocation
/// lists have.
const MAX_BYTES: u64 = 16 << 20;

/// Returns the bytes of a file that the configuration names.
///
/// # Errors
/// The file can't be read, or has more than [`MAX_BYTES`]. A pipe, socket, device or directory is
/// refused: the server reads its files again and again, and must never wait for another program to
/// write one.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Opens a file that the configuration names.
///
/// # Errors
/// See [`read_file`].
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    // A socket can't be opened, so its kind is found first.
    check_kind(&std::fs::metadata(path)?)?;
    // Another program may replace the file in between. Without O_NONBLOCK, a pipe that nobody writes
    // would block here (fifo(7)).
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

fn check_kind(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    let name = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {name}, not a file")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn only_files_are_read() {
        let directory = tempfile::TempDir::new().unwrap();
        let [file, link, pipe, socket] = ["file", "link", "pipe", "socket"].map(|name| directory.path().join(name));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!([&file, &link].map(|path| read_file(path).unwrap()), [b"text", b"text"]);
        let null = Path::new("/dev/null");
        for (path, kind) in
            [(&*pipe, "a pipe"), (&socket, "a socket"), (directory.path(), "a directory"), (null, "a device")]
        {
            assert_eq!(read_file(path).unwrap_err().to_string(), format!("it is {kind}, not a file"));
        }
        // A sparse file of 20 GiB is not read to its end.
        File::options().write(true).open(&file).unwrap().set_len(20 << 30).unwrap();
        assert_eq!(read_file(&file).unwrap_err().to_string(), "it has more than 16 MiB");
        assert_eq!(read_file(&directory.path().join("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
