//! The reads of queues: the rows of a group of commands, and lists.

use std::ops::Bound;
use std::sync::LazyLock;

use leasehold_core::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use leasehold_core::rows::{Keys, LaneOrder, OrderedRead, RequestOrder, State, Workspace};
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::columns::{Micros, Parameters};
use super::failure::failed;
use super::lock_columns::{Clipped, clip};
use super::lock_reads::{BEYOND_TEXT, lower, rows, sql_limit, upper};
use super::queue_columns::{self as columns, LANE, QUEUE, REQUEST};
use crate::store::error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

static READ_QUEUES: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {QUEUE} FROM request_queues q WHERE q.queue = ANY ($1)"));
static READ_LANES: LazyLock<String> = LazyLock::new(|| format!("SELECT {LANE} FROM read_lanes($1, $2) l"));
static READ_REQUESTS: LazyLock<String> = LazyLock::new(|| format!("SELECT {REQUEST} FROM read_requests($1) r"));
const READ_BODIES: &str = "SELECT b.uuid, b.body FROM request_bodies b WHERE b.uuid = ANY ($1)";
/// Like [`READ_BODIES`], for a group. A group has generic plans, which find the partition of each id only in a join.
const JOIN_BODIES: &str = "SELECT b.uuid, b.body FROM unnest($1) AS n (u) JOIN request_bodies b ON b.uuid = n.u";
/// The first requests of lanes in one state.
static READ_OPEN: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {REQUEST} FROM read_requests_of_lanes($1, $2, $3, $4) r"));

/// The rows of queues that one load has read.
#[derive(Default)]
pub(super) struct LoadedQueues {
    queues: FxHashMap<QueuePath, Queue>,
    lanes: FxHashMap<LanePath, Lane>,
    requests: FxHashMap<RequestId, Request>,
    bodies: FxHashMap<RequestId, RequestBody>,
    // The requests of each lane that were read: those that wait, and those that are taken (`true`).
    open: FxHashMap<(LanePath, bool), Vec<(RequestId, Request)>>,
}

/// The parameters of the statements that load queues.
pub(super) struct QueueKeys {
    queues: Vec<String>,
    lanes: (Vec<String>, Vec<String>),
    requests: Vec<Uuid>,
    bodies: Vec<Uuid>,
    open: (Vec<String>, Vec<String>, Vec<i16>, Vec<i64>),
}

impl QueueKeys {
    /// Returns the parameters for these keys.
    ///
    /// # Errors
    /// An ordered read is not one of those that the engine's commands ask for.
    pub(super) fn of(keys: &Keys) -> Result<Self> {
        let mut open = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for read in &keys.requests_of_lane {
            // The reads of commands begin with the first request of the lane.
            let (lane, state) = match &read.from {
                Bound::Included(RequestOrder::Waiting(lane, 0)) => (lane, 1),
                Bound::Included(RequestOrder::Taken(lane, 0)) => (lane, 2),
                _ => return Err(StoreError::Failed("no command makes such an ordered read".into())),
            };
            let (queue, key) = texts(lane);
            open.0.push(queue);
            open.1.push(key);
            open.2.push(state);
            open.3.push(sql_limit(read.limit));
        }
        Ok(Self {
            queues: keys.queues.iter().map(|path| path.as_str().into()).collect(),
            lanes: keys.lanes.iter().map(texts).unzip(),
            requests: keys.requests.iter().map(|id| id.0).collect(),
            bodies: keys.bodies.iter().map(|id| id.0).collect(),
            open,
        })
    }
}

fn texts(path: &LanePath) -> (String, String) {
    (path.queue().as_str().into(), path.key().into())
}

/// Reads the rows of queues in the transaction of a group. All statements are sent before the first answer is awaited.
///
/// # Errors
/// A row could not be read.
pub(super) async fn load(client: &Client, keys: QueueKeys) -> Result<LoadedQueues> {
    let QueueKeys { queues, lanes, requests, bodies, open } = keys;
    let paths = vec![(&lanes.0 as _, Type::TEXT_ARRAY), (&lanes.1 as _, Type::TEXT_ARRAY)];
    let reads = vec![
        (&open.0 as _, Type::TEXT_ARRAY),
        (&open.1 as _, Type::TEXT_ARRAY),
        (&open.2 as _, Type::INT2_ARRAY),
        (&open.3 as _, Type::INT8_ARRAY),
    ];
    let (read_queues, read_lanes, read_requests, read_bodies, read_open) = futures_util::join!(
        rows(client, &READ_QUEUES, vec![(&queues, Type::TEXT_ARRAY)], !queues.is_empty()),
        rows(client, &READ_LANES, paths, !lanes.0.is_empty()),
        rows(client, &READ_REQUESTS, vec![(&requests, Type::UUID_ARRAY)], !requests.is_empty()),
        rows(client, JOIN_BODIES, vec![(&bodies, Type::UUID_ARRAY)], !bodies.is_empty()),
        rows(client, &READ_OPEN, reads, !open.0.is_empty()),
    );
    let mut of_lanes: FxHashMap<_, Vec<_>> = FxHashMap::default();
    for row in read_open? {
        let (id, request) = columns::request(&row)?;
        of_lanes.entry((request.lane.clone(), !request.is_new())).or_default().push((id, request));
    }
    Ok(LoadedQueues {
        queues: read_queues?.iter().map(columns::queue).collect::<Result<_>>()?,
        lanes: read_lanes?.iter().map(columns::lane).collect::<Result<_>>()?,
        requests: read_requests?.iter().map(columns::request).collect::<Result<_>>()?,
        bodies: read_bodies?.iter().map(columns::body).collect::<Result<_>>()?,
        open: of_lanes,
    })
}

impl LoadedQueues {
    /// Puts the rows into the workspace, and the fact that a row is absent.
    pub(super) fn put_into(mut self, workspace: &mut Workspace, keys: &Keys) {
        for read in &keys.requests_of_lane {
            let found = position(&read.from).and_then(|from| match from {
                RequestOrder::Waiting(lane, _) => self.open.remove(&(lane, false)),
                RequestOrder::Taken(lane, _) => self.open.remove(&(lane, true)),
                RequestOrder::Settled(..) => None,
            });
            let mut found = found.unwrap_or_default();
            found.sort_unstable_by_key(|(_, request)| request.number);
            workspace.load_first(read, found);
        }
        keys.queues.iter().for_each(|path| workspace.load(path.clone(), self.queues.remove(path)));
        keys.lanes.iter().for_each(|path| workspace.load(path.clone(), self.lanes.remove(path)));
        keys.requests.iter().for_each(|id| workspace.load(*id, self.requests.remove(id)));
        keys.bodies.iter().for_each(|id| workspace.load(*id, self.bodies.remove(id)));
    }
}

/// Adds the rows of queues to the state.
///
/// # Errors
/// A row could not be read.
pub(super) async fn add_state(client: &Client, state: &mut State) -> Result<()> {
    let all = async |columns: &str, table: &str| {
        client.query_typed(&format!("SELECT {columns} FROM {table}"), &[]).await.map_err(failed)
    };
    state.queues = all(QUEUE, "request_queues q").await?.iter().map(columns::queue).collect::<Result<_>>()?;
    state.lanes = all(LANE, "request_lanes l").await?.iter().map(columns::lane).collect::<Result<_>>()?;
    for table in ["open_requests r", "settled_requests r"] {
        let requests = all(REQUEST, table).await?;
        state.requests.extend(requests.iter().map(columns::request).collect::<Result<Vec<_>>>()?);
    }
    let bodies = all("b.uuid, b.body", "request_bodies b").await?;
    state.bodies = bodies.iter().map(columns::body).collect::<Result<_>>()?;
    Ok(())
}

/// Reads a queue; `None` if it has no row.
pub(super) async fn queue(client: &Client, path: &QueuePath) -> Result<Option<Queue>> {
    let names = vec![path.as_str()];
    let found = rows(client, &READ_QUEUES, vec![(&names, Type::TEXT_ARRAY)], true).await?;
    found.first().map(|row| columns::queue(row).map(|(_, queue)| queue)).transpose()
}

/// Reads a lane; `None` if it has no row.
pub(super) async fn lane(client: &Client, path: &LanePath) -> Result<Option<Lane>> {
    let (queues, keys) = (vec![path.queue().as_str()], vec![path.key()]);
    let parameters: Parameters<'_> = vec![(&queues, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
    let found = rows(client, &READ_LANES, parameters, true).await?;
    found.first().map(|row| columns::lane(row).map(|(_, lane)| lane)).transpose()
}

/// Reads a request; `None` if it has no row.
pub(super) async fn request(client: &Client, id: RequestId) -> Result<Option<Request>> {
    let ids = vec![id.0];
    let found = rows(client, &READ_REQUESTS, vec![(&ids, Type::UUID_ARRAY)], true).await?;
    found.first().map(|row| columns::request(row).map(|(_, request)| request)).transpose()
}

/// Reads the bodies of requests, in the order of `ids`.
pub(super) async fn bodies(client: &Client, ids: &[RequestId]) -> Result<Vec<Option<RequestBody>>> {
    let uuids: Vec<_> = ids.iter().map(|id| id.0).collect();
    let found = rows(client, READ_BODIES, vec![(&uuids, Type::UUID_ARRAY)], !uuids.is_empty()).await?;
    let mut found: FxHashMap<RequestId, RequestBody> = found.iter().map(columns::body).collect::<Result<_>>()?;
    Ok(ids.iter().map(|id| found.remove(id)).collect())
}

/// Reads the first queues of a range that have a row, by name.
pub(super) async fn queues(client: &Client, read: &OrderedRead<Queue>) -> Result<Vec<(QueuePath, Queue)>> {
    let (after, from) = lower(read.from.as_ref().map(QueuePath::as_str), "");
    let (before, to) = upper(read.to.as_ref().map(QueuePath::as_str), &BEYOND_TEXT);
    let sql = format!(
        "SELECT {QUEUE} FROM request_queues q WHERE q.queue {after} $1 AND q.queue {before} $2 ORDER BY q.queue LIMIT $3"
    );
    let limit = sql_limit(read.limit);
    let parameters: Parameters<'_> = vec![(&from, Type::TEXT), (&to, Type::TEXT), (&limit, Type::INT8)];
    rows(client, &sql, parameters, true).await?.iter().map(columns::queue).collect()
}

/// A place in a list of lanes: the columns of the list's order, as far as it has them.
#[derive(Default)]
struct LanePlace {
    queue: String,
    at: Timestamp,
    session: Uuid,
    fence: i64,
    lane: (String, String),
}

/// The columns by which each list of lanes is ordered, in the order of the lists' numbers.
const LANE_ORDERS: [&str; 5] = [
    "l.queue, l.rank, l.key",
    "l.queue, l.not_before, l.key",
    "l.session_uuid, l.fence, l.queue, l.key",
    "l.queue, l.key",
    "l.updated_at, l.queue, l.key",
];

/// Returns the number of the list of a lane's position, from 0, and the place in that list.
fn lane_place(position: &LaneOrder) -> (u8, LanePlace) {
    let place = |path| LanePlace { lane: texts(path), ..LanePlace::default() };
    let of_queue = |queue: &QueuePath, at, path| LanePlace { queue: queue.as_str().into(), at, ..place(path) };
    match position {
        LaneOrder::Ready(queue, rank, path) => (0, of_queue(queue, *rank, path)),
        LaneOrder::Delayed(queue, due, path) => (1, of_queue(queue, *due, path)),
        LaneOrder::Taken(session, fence, path) => {
            let fence = i64::try_from(fence.0).unwrap_or(i64::MAX);
            (2, LanePlace { session: session.0, fence, ..place(path) })
        }
        LaneOrder::Paused(path) => (3, place(path)),
        LaneOrder::Idle(at, path) => (4, LanePlace { at: *at, ..place(path) }),
    }
}

/// Reads the first lanes of a range.
pub(super) async fn lanes(client: &Client, read: &OrderedRead<Lane>) -> Result<Vec<(LanePath, Lane)>> {
    let mut found = Vec::new();
    for (list, order) in (0..).zip(LANE_ORDERS) {
        let limit = read.limit.saturating_sub(found.len());
        let range = clip::<Lane, _>((&read.from, &read.to), list, lane_place).filter(|_| limit > 0);
        if let Some(range) = range {
            found.extend(lanes_of_list(client, (list, order), range, limit).await?);
        }
    }
    Ok(found)
}

async fn lanes_of_list(
    client: &Client,
    (list, order): (u8, &str),
    range: Clipped<LanePlace>,
    limit: usize,
) -> Result<Vec<(LanePath, Lane)>> {
    let last = || LanePlace {
        queue: BEYOND_TEXT.clone(),
        at: Timestamp::MAX,
        session: Uuid::max(),
        fence: i64::MAX,
        lane: (BEYOND_TEXT.clone(), String::new()),
    };
    let ((after, from), (before, to)) = (lower(range.0, LanePlace::default()), upper(range.1, last()));
    let places = [from, to].map(|place| (Micros(place.at), place));
    let number = |at: usize| format!("${at}");
    let (mut parameters, mut sides): (Parameters<'_>, Vec<String>) = (Vec::new(), Vec::new());
    for (at, place) in &places {
        let values: Parameters<'_> = match list {
            0 | 1 => vec![(&place.queue, Type::TEXT), (at, Type::TIMESTAMPTZ), (&place.lane.1, Type::TEXT)],
            2 => vec![
                (&place.session, Type::UUID),
                (&place.fence, Type::INT8),
                (&place.lane.0, Type::TEXT),
                (&place.lane.1, Type::TEXT),
            ],
            3 => vec![(&place.lane.0, Type::TEXT), (&place.lane.1, Type::TEXT)],
            _ => vec![(at, Type::TIMESTAMPTZ), (&place.lane.0, Type::TEXT), (&place.lane.1, Type::TEXT)],
        };
        let first = parameters.len() + 1;
        sides.push((first..first + values.len()).map(number).collect::<Vec<_>>().join(", "));
        parameters.extend(values);
    }
    let (from, to) = (sides.first().cloned().unwrap_or_default(), sides.last().cloned().unwrap_or_default());
    let (list, limit) = (list + 1, sql_limit(limit));
    let sql = format!(
        "SELECT {LANE} FROM request_lanes l WHERE l.list = {list} AND ({order}) {after} ({from}) AND ({order}) {before} ({to})
         ORDER BY {order} LIMIT {limit}"
    );
    rows(client, &sql, parameters, true).await?.iter().map(columns::lane).collect()
}

/// Reads the first requests of a range: those of a lane that wait or are taken, by number, or settled ones by the time
/// of their settle.
///
/// # Errors
/// The range is not in the list of one lane or of the settled requests.
pub(super) async fn requests(client: &Client, read: &OrderedRead<Request>) -> Result<Vec<(RequestId, Request)>> {
    use RequestOrder::{Settled, Taken, Waiting};
    let numbers = |from: &u64, to: &u64| (read.from.as_ref().map(|_| *from), read.to.as_ref().map(|_| *to));
    let (at, limit) = (|bound: &Bound<RequestOrder>| position(bound), sql_limit(read.limit));
    match (at(&read.from), at(&read.to)) {
        (Some(Waiting(lane, from)), Some(Waiting(other, to))) if lane == other => {
            open(client, (&lane, 1), numbers(&from, &to), limit).await
        }
        (Some(Taken(lane, from)), Some(Taken(other, to))) if lane == other => {
            open(client, (&lane, 2), numbers(&from, &to), limit).await
        }
        (Some(Settled(from, first)), Some(Settled(to, last))) => {
            let ((after, _), (before, _)) =
                (lower(read.from.as_ref().map(|_| ()), ()), upper(read.to.as_ref().map(|_| ()), ()));
            let sql = format!(
                "SELECT {REQUEST} FROM settled_requests r WHERE (r.updated_at, uuid_send(r.uuid)) {after} ($1, uuid_send($2))
                     AND (r.updated_at, uuid_send(r.uuid)) {before} ($3, uuid_send($4))
                     ORDER BY r.updated_at, uuid_send(r.uuid) LIMIT $5"
            );
            let (from, to) = (Micros(from), Micros(to));
            let parameters: Parameters<'_> = vec![
                (&from, Type::TIMESTAMPTZ),
                (&first.0, Type::UUID),
                (&to, Type::TIMESTAMPTZ),
                (&last.0, Type::UUID),
                (&limit, Type::INT8),
            ];
            rows(client, &sql, parameters, true).await?.iter().map(columns::request).collect()
        }
        _ => Err(StoreError::Failed("a list of requests is that of one lane, or that of the settled ones".into())),
    }
}

fn position(bound: &Bound<RequestOrder>) -> Option<RequestOrder> {
    match bound {
        Bound::Included(at) | Bound::Excluded(at) => Some(at.clone()),
        Bound::Unbounded => None,
    }
}

async fn open(
    client: &Client,
    (lane, state): (&LanePath, i16),
    (from, to): (Bound<u64>, Bound<u64>),
    limit: i64,
) -> Result<Vec<(RequestId, Request)>> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let ((after, from), (before, to)) = (lower(from.map(number), 0), upper(to.map(number), i64::MAX));
    let sql = format!(
        "SELECT {REQUEST} FROM open_requests r WHERE r.queue = $1 AND r.key = $2 AND r.state = $3
             AND r.number {after} $4 AND r.number {before} $5 ORDER BY r.number LIMIT $6"
    );
    let (queue, key) = (lane.queue().as_str(), lane.key());
    let parameters: Parameters<'_> = vec![
        (&queue, Type::TEXT),
        (&key, Type::TEXT),
        (&state, Type::INT2),
        (&from, Type::INT8),
        (&to, Type::INT8),
        (&limit, Type::INT8),
    ];
    let found: Vec<Row> = rows(client, &sql, parameters, true).await?;
    found.iter().map(columns::request).collect()
}
