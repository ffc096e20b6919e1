//! `leasehold export` and `leasehold import`: write every row of a store as JSON lines, and read such
//! lines into a new store. The new one may be of another kind.

mod import;
mod kept_rows;
mod output;

use std::fmt::{self, Display};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use leasehold_core::queue::QueuePath;
use leasehold_core::rows::AnyRow;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::config::{Config, ConfigError, EtcdConfig, PostgresConfig};
use crate::store::stored::{
    Ask, Claim, IdempotencyKey, Key, Lane, LanePath, Lease, Lock, NEWEST_VERSION, Path as LockPath, Queue, Replay,
    Request, RequestBody, Session, Turn, TurnKey,
};
use crate::store::{Creation, DamagedStore, EmbeddedStore, OrderedStore, PostgresStore, Salvaged, StoreError};

pub use import::{LineError, RowError, import};
use output::write_to;

/// The number of rows after which an export or import reports its progress again.
const REPORT_ROWS: u64 = 100_000;
/// The most characters of an error text that quotes a line of an export. A line can be as long as
/// the whole file.
const SHOWN_CHARACTERS: usize = 200;

/// The place of a store: of one to export, or of a new one to import into.
#[derive(Clone, Debug)]
pub enum StorePlace {
    /// A data directory, which no server has open.
    Directory(PathBuf),
    /// A PostgreSQL database.
    Postgres(Box<PostgresConfig>),
    /// A cluster of etcd.
    Etcd(Box<EtcdConfig>),
}

impl StorePlace {
    /// Returns the place that a configuration names.
    ///
    /// # Errors
    /// No store is configured, and the user has no state folder.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        Ok(match (&config.postgres, &config.etcd) {
            (Some(settings), _) => Self::Postgres(Box::new(settings.clone())),
            (None, Some(settings)) => Self::Etcd(Box::new(settings.clone())),
            (None, None) => Self::Directory(config.data_dir()?),
        })
    }
}

impl From<&Path> for StorePlace {
    fn from(directory: &Path) -> Self {
        Self::Directory(directory.to_owned())
    }
}

/// The place as text for people, without secrets.
impl Display for StorePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(directory) => directory.display().fmt(formatter),
            Self::Postgres(settings) => settings.shown_url().fmt(formatter),
            Self::Etcd(settings) => settings.shown_url().fmt(formatter),
        }
    }
}

/// One line of an export: first the header, then the rows, then the end. The end has the number of
/// rows, which shows that no row is missing.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line<'a> {
    Header {
        format: u64,
    },
    Claim {
        #[serde(borrow)]
        key: Key<'a>,
        #[serde(borrow)]
        claim: Claim<'a>,
    },
    Lease {
        id: Uuid,
        #[serde(borrow)]
        lease: Lease<'a>,
    },
    Replay {
        #[serde(borrow)]
        key: IdempotencyKey<'a>,
        #[serde(borrow)]
        replay: Replay<'a>,
    },
    Session {
        id: Uuid,
        session: Session,
    },
    Lock {
        path: LockPath,
        lock: Lock,
    },
    Ask {
        id: Uuid,
        ask: Ask,
    },
    Turn {
        key: TurnKey,
        turn: Turn,
    },
    Queue {
        path: QueuePath,
        queue: Queue,
    },
    Lane {
        path: LanePath,
        lane: Lane,
    },
    Request {
        id: Uuid,
        request: Request,
    },
    Body {
        id: Uuid,
        body: RequestBody,
    },
    End {
        fence: u64,
        rows: u64,
    },
}

/// An export or import failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store can't be opened, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file can't be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The data directory to export does not exist.
    #[error("there is no data directory `{}`", .0.display())]
    NoData(PathBuf),
    /// A line of the input is not a line of an export.
    #[error("line {line} is not a row of an export: {}", shortened(.error))]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The problem of the line.
        error: LineError,
    },
    /// The last line of the export is missing, or its number of rows differs from the rows read.
    #[error("the export is cut short: its last line is missing, or has another number of rows; export again")]
    CutShort,
    /// A row contradicts an invariant, the configuration, or an earlier row.
    #[error("line {line} can't be imported: {}", shortened(.error))]
    Row {
        /// The number of the line, from 1.
        line: u64,
        /// The problem of the row.
        error: RowError,
    },
    /// A salvage left out rows that can't be read. It wrote all other rows.
    #[error(
        "{}{} can't be read, and left out of the export: restore what they held from a copy",
        if *.is_exact { "" } else { "at least " },
        damaged_rows(*.rows)
    )]
    Damaged {
        /// The number of rows left out.
        rows: u64,
        /// False if more rows may be missing.
        is_exact: bool,
    },
    /// A salvage was asked for, and the store is no data directory.
    #[error("`--salvage` is for data directories: leave it out, or restore the database from a copy")]
    NoSalvage,
    /// The output of an export lies in the data directory.
    #[error("the output `{}` lies in the data directory, where it could replace a file of the store: choose another place", .0.display())]
    OutputInData(PathBuf),
    /// The data directory to import into is not empty.
    #[error("the data directory `{}` is not empty: import into a new one", .0.display())]
    NotEmpty(PathBuf),
}

/// Returns the text of an error, cut after [`SHOWN_CHARACTERS`] characters.
fn shortened(error: &impl Display) -> String {
    let text = error.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text,
    }
}

fn damaged_rows(count: u64) -> String {
    if count == 1 { "1 damaged row".to_owned() } else { format!("{count} damaged rows") }
}

/// The rows of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The number of rows written.
    pub rows: u64,
    /// The number of rows that can't be read; 0 unless the export is a salvage.
    pub damaged: u64,
    /// False if more rows than `damaged` may be missing.
    pub is_exact: bool,
}

/// Writes every row of a store to the file at `output`, as [`export`] does.
///
/// # Errors
/// The output lies in the data directory, or [`export`] failed.
pub fn export_to(place: &StorePlace, salvage: bool, output: &Path) -> Result<Exported, TransferError> {
    if let StorePlace::Directory(data) = place {
        output::check_place(data, output)?;
    }
    write_to(output, |file| export(place, salvage, BufWriter::new(file)))
}

/// Writes every row of a store as JSON lines. If `salvage` is true, rows of a data directory that can't be
/// read are counted and left out.
///
/// # Errors
/// The store can't be opened or read (a running server has a data directory open), or the output can't be
/// written.
pub fn export(place: &StorePlace, salvage: bool, mut to: impl Write + Send) -> Result<Exported, TransferError> {
    let all = |fence| Salvaged { fence, damaged: 0, is_exact: true };
    match place {
        StorePlace::Directory(data) => export_directory(data, salvage, &mut to),
        StorePlace::Postgres(_) | StorePlace::Etcd(_) if salvage => Err(TransferError::NoSalvage),
        StorePlace::Postgres(settings) => write_rows(NEWEST_VERSION, &mut to, |visit| {
            runtime()?.block_on(PostgresStore::export(settings, visit)).map(all)
        }),
        StorePlace::Etcd(settings) => {
            let runtime = runtime()?;
            let store = runtime.block_on(OrderedStore::on_etcd(settings, Creation::Refused))?;
            write_rows(NEWEST_VERSION, &mut to, |visit| runtime.block_on(store.export(visit)).map(all))
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn export_directory(data: &Path, salvage: bool, to: &mut (impl Write + Send)) -> Result<Exported, TransferError> {
    if !data.is_dir() {
        return Err(TransferError::NoData(data.to_owned()));
    }
    if salvage {
        let store = DamagedStore::open(data)?;
        return write_rows(store.format()?, to, |visit| store.salvage(visit));
    }
    let store = EmbeddedStore::open(data, Creation::Refused)?;
    let read = |visit: Visit<'_>| Ok(Salvaged { fence: store.for_each(visit)?, damaged: 0, is_exact: true });
    write_rows(store.format()?, to, read)
}

type Visit<'a> = &'a mut (dyn FnMut(AnyRow) -> Result<(), TransferError> + Send);

/// Writes the rows that `read` passes on, between the first line and the last one.
fn write_rows(
    format: u64,
    to: &mut (impl Write + Send),
    read: impl FnOnce(Visit<'_>) -> Result<Salvaged, TransferError>,
) -> Result<Exported, TransferError> {
    let mut rows = 0;
    let Salvaged { fence, damaged, is_exact } = read(&mut |row| {
        if rows == 0 {
            write_line(to, &Line::Header { format })?;
        }
        rows += 1;
        report("exported", rows);
        write_line(to, &line(&row))
    })?;
    // The header comes with the first row, so that a store which can't be opened leaves no output.
    if rows == 0 {
        write_line(to, &Line::Header { format })?;
    }
    write_line(to, &Line::End { fence: fence.0, rows })?;
    to.flush()?;
    Ok(Exported { rows, damaged, is_exact })
}

fn line(row: &AnyRow) -> Line<'_> {
    match row {
        AnyRow::Claim(key, claim) => Line::Claim { key: key.into(), claim: claim.into() },
        AnyRow::Lease(id, lease) => Line::Lease { id: id.0, lease: lease.into() },
        AnyRow::Replay(key, replay) => Line::Replay { key: key.into(), replay: replay.into() },
        AnyRow::Session(id, session) => Line::Session { id: id.0, session: session.into() },
        AnyRow::Lock(path, lock) => Line::Lock { path: path.into(), lock: lock.into() },
        AnyRow::Ask(id, ask) => Line::Ask { id: id.0, ask: ask.into() },
        AnyRow::Turn(key, turn) => Line::Turn { key: key.into(), turn: turn.into() },
        AnyRow::Queue(path, queue) => Line::Queue { path: path.clone(), queue: queue.into() },
        AnyRow::Lane(path, lane) => Line::Lane { path: path.into(), lane: lane.into() },
        AnyRow::Request(id, request) => Line::Request { id: id.0, request: request.into() },
        AnyRow::RequestBody(id, body) => Line::Body { id: id.0, body: body.into() },
    }
}

fn write_line(to: &mut impl Write, line: &Line<'_>) -> Result<(), TransferError> {
    serde_json::to_writer(&mut *to, line).map_err(io::Error::from)?;
    Ok(to.write_all(b"\n")?)
}

/// Prints the progress to standard error if `rows` is a multiple of [`REPORT_ROWS`].
fn report(done: &str, rows: u64) {
    if rows.is_multiple_of(REPORT_ROWS) {
        eprintln!("{done} {rows} rows");
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::rules::Rules;

    use super::*;

    #[test]
    fn a_cut_export_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        drop(EmbeddedStore::open(&one, Creation::Allowed).unwrap());
        let mut lines = Vec::new();
        assert_eq!(
            export(&one.as_path().into(), false, &mut lines).unwrap(),
            Exported { rows: 0, damaged: 0, is_exact: true }
        );
        assert_eq!(import(&two.as_path().into(), lines.as_slice(), Rules::default()).unwrap(), 0);
        assert!(matches!(
            import(&two.as_path().into(), lines.as_slice(), Rules::default()),
            Err(TransferError::NotEmpty(_))
        ));
        let cut = lines.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let three = dir.path().join("three");
        assert!(matches!(
            import(&three.as_path().into(), &lines[..cut], Rules::default()),
            Err(TransferError::CutShort)
        ));
        assert!(!three.exists());
    }
}
