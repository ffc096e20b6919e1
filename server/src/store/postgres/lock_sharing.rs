//! The statements by which servers agree on who watches a session: see
//! [`SharedLocks`](crate::store::port::SharedLocks).

use std::sync::LazyLock;

use leasehold_core::lease::Fence;
use leasehold_core::lock::{AskId, LockPath};
use leasehold_core::locking::HeldSlot;
use leasehold_core::session::{Session, SessionId};
use rustc_hash::FxHashMap;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::columns::damaged;
use super::failure::failed;
use super::lock_columns::{self, SESSION};
use crate::store::error::StoreError;
use crate::store::port::{OtherServer, SessionChange, Vouched, WaitingRows};

type Result<T> = std::result::Result<T, StoreError>;

/// Vouches for the sessions of the server `$1`, and reads its news. One statement has one snapshot:
/// each session that had moved away when the statement was sent is in the news. The first eight
/// characters of a log file's name are the timeline, which changes at a failover
/// (https://www.postgresql.org/docs/15/continuous-archiving.html#BACKUP-TIMELINES).
const VOUCH: &str = "
    WITH beat AS (
        INSERT INTO lock_servers AS s (id, beats, address) VALUES ($1, 1, $2)
        ON CONFLICT (id) DO UPDATE SET beats = s.beats + 1 RETURNING s.beats
    ), news AS (
        DELETE FROM lock_news WHERE server = $1 RETURNING session_uuid, renewals, has_ended, fence
    )
    SELECT 1::smallint, 0::bigint, beats, false, NULL::uuid, NULL::bigint,
        left(pg_walfile_name(pg_current_wal_lsn()), 8), NULL::text FROM beat
    UNION ALL SELECT 2::smallint, id, beats, is_stopped, NULL, NULL, NULL, address
        FROM lock_servers WHERE id <> $1
    UNION ALL SELECT 3::smallint, 0, renewals, has_ended, session_uuid, fence, NULL, NULL FROM news";

static OWN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {SESSION} FROM lock_sessions s WHERE s.home = $1 AND s.ended IS NULL AND s.uuid > $2
         ORDER BY s.home, s.uuid LIMIT $3"
    )
});

static ADOPT: LazyLock<String> = LazyLock::new(|| format!("SELECT {SESSION} FROM adopt_sessions($1, $2, $3) s"));

/// The homes that are no server's. News for servers that are gone are deleted.
const HOMELESS: &str = "
    WITH old AS (DELETE FROM lock_news n WHERE NOT EXISTS (SELECT FROM lock_servers v WHERE v.id = n.server))
    SELECT DISTINCT s.home FROM lock_sessions s
    WHERE s.ended IS NULL AND NOT EXISTS (SELECT FROM lock_servers v WHERE v.id = s.home)";

const FORGET_SERVER: &str = "
    DELETE FROM lock_servers v WHERE v.id = $1 AND v.beats = $2
        AND NOT EXISTS (SELECT FROM lock_sessions s WHERE s.home = $1 AND s.ended IS NULL)";

const WAITING: &str = "
    SELECT 1::smallint, a.uuid, a.fence, a.namespace, a.key FROM lock_asks a WHERE a.uuid = ANY ($1)
    UNION ALL SELECT 2::smallint, s.uuid, (SELECT count(*) FROM lock_forced f WHERE f.session_uuid = s.uuid), '', ''
        FROM lock_sessions s WHERE s.uuid = ANY ($2) AND s.ended IS NULL";

/// The addresses of the servers whose calls attend to asks.
const ATTENDANTS: &str = "
    SELECT DISTINCT v.address FROM lock_asks a JOIN lock_sessions s ON s.uuid = a.session_uuid
        JOIN lock_servers v ON v.id = coalesce(a.attendant, s.home)
    WHERE a.uuid = ANY ($1) AND v.id <> $2 AND v.address IS NOT NULL AND NOT v.is_stopped LIMIT $3";

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(failed)
}

pub(super) async fn vouch(client: &Client, server: i64, address: Option<&str>) -> Result<Vouched> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&server, Type::INT8), (&address, Type::TEXT)];
    let rows = client.query_typed(VOUCH, &parameters).await.map_err(failed)?;
    let mut vouched = Vouched::default();
    for row in &rows {
        let (id, count, flag): (i64, i64, bool) = (get(row, 1)?, get(row, 2)?, get(row, 3)?);
        match get::<i16>(row, 0)? {
            1 => (vouched.beats, vouched.timeline) = (count, get(row, 6)?),
            2 => {
                let address = get(row, 7)?;
                vouched.others.push(OtherServer { id, beats: count, is_stopped: flag, address });
            }
            _ => vouched.news.push(SessionChange {
                session: SessionId(get(row, 4)?),
                renewals: count.cast_unsigned(),
                has_ended: flag,
                forced: get::<Option<i64>>(row, 5)?.map(|fence| Fence(fence.cast_unsigned())),
            }),
        }
    }
    vouched.is_first = vouched.others.iter().all(|other| other.is_stopped || other.id > server);
    Ok(vouched)
}

/// Reads a page of the live sessions whose home is a server, in the order of their ids.
pub(super) async fn own(
    client: &Client,
    server: i64,
    after: Option<SessionId>,
    limit: i64,
) -> Result<Vec<(SessionId, Session)>> {
    let after = after.map_or(Uuid::nil(), |id| id.0);
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&server, Type::INT8), (&after, Type::UUID), (&limit, Type::INT8)];
    let rows = client.query_typed(&OWN, &parameters).await.map_err(failed)?;
    rows.iter().map(lock_columns::session).collect()
}

pub(super) async fn adopt(client: &Client, server: i64, former: i64, limit: i32) -> Result<Vec<(SessionId, Session)>> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&server, Type::INT8), (&former, Type::INT8), (&limit, Type::INT4)];
    let rows = client.query_typed(&ADOPT, &parameters).await.map_err(failed)?;
    rows.iter().map(lock_columns::session).collect()
}

pub(super) async fn homeless(client: &Client) -> Result<Vec<i64>> {
    let rows = client.query_typed(HOMELESS, &[]).await.map_err(failed)?;
    rows.iter().map(|row| get(row, 0)).collect()
}

pub(super) async fn forget_server(client: &Client, other: &OtherServer) -> Result<()> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&other.id, Type::INT8), (&other.beats, Type::INT8)];
    client.execute_typed(FORGET_SERVER, &parameters).await.map(drop).map_err(failed)
}

pub(super) async fn stop(client: &Client, server: i64) -> Result<()> {
    let sql = "UPDATE lock_servers SET is_stopped = true, beats = beats + 1 WHERE id = $1";
    client.execute_typed(sql, &[(&server, Type::INT8)]).await.map(drop).map_err(failed)
}

pub(super) async fn waiting(client: &Client, asks: &[AskId], sessions: &[SessionId]) -> Result<WaitingRows> {
    let asks: Vec<Uuid> = asks.iter().map(|ask| ask.0).collect();
    let sessions: Vec<Uuid> = sessions.iter().map(|session| session.0).collect();
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&asks, Type::UUID_ARRAY), (&sessions, Type::UUID_ARRAY)];
    let rows = client.query_typed(WAITING, &parameters).await.map_err(failed)?;
    let mut found = WaitingRows::default();
    for row in &rows {
        let (id, number): (Uuid, Option<i64>) = (get(row, 1)?, get(row, 2)?);
        match get::<i16>(row, 0)? {
            1 => {
                let path = LockPath::parse_stored(get(row, 3)?, get(row, 4)?).map_err(|_| damaged("lock_asks"))?;
                let hold = |fence: i64| HeldSlot { fence: Fence(fence.cast_unsigned()), slot: path.slot() };
                _ = found.asks.insert(AskId(id), number.map(hold));
            }
            _ => _ = found.sessions.insert(SessionId(id), number.unwrap_or_default().cast_unsigned()),
        }
    }
    Ok(found)
}

pub(super) async fn attendants(client: &Client, server: i64, asks: &[AskId], limit: i64) -> Result<Vec<String>> {
    let asks: Vec<Uuid> = asks.iter().map(|ask| ask.0).collect();
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&asks, Type::UUID_ARRAY), (&server, Type::INT8), (&limit, Type::INT8)];
    let rows = client.query_typed(ATTENDANTS, &parameters).await.map_err(failed)?;
    rows.iter().map(|row| get(row, 0)).collect()
}

pub(super) async fn forced(client: &Client, sessions: &[SessionId]) -> Result<FxHashMap<SessionId, Vec<Fence>>> {
    let ids: Vec<Uuid> = sessions.iter().map(|session| session.0).collect();
    let sql = "SELECT session_uuid, fence FROM lock_forced WHERE session_uuid = ANY ($1) ORDER BY session_uuid, fence";
    let rows = client.query_typed(sql, &[(&ids, Type::UUID_ARRAY)]).await.map_err(failed)?;
    let mut forced: FxHashMap<_, Vec<_>> = FxHashMap::default();
    for row in &rows {
        let fence = Fence(get::<i64>(row, 1)?.cast_unsigned());
        forced.entry(SessionId(get(row, 0)?)).or_default().push(fence);
    }
    Ok(forced)
}

pub(super) async fn attend(client: &Client, server: i64, ask: AskId) -> Result<bool> {
    let sql = "UPDATE lock_asks SET attendant = $1 WHERE uuid = $2 AND NOT is_abandoned";
    let changed = client.execute_typed(sql, &[(&server, Type::INT8), (&ask.0, Type::UUID)]).await;
    changed.map(|rows| rows > 0).map_err(failed)
}

pub(super) async fn abandon(client: &Client, server: i64, ask: AskId) -> Result<bool> {
    let sql = "UPDATE lock_asks SET is_abandoned = true WHERE uuid = $2 AND coalesce(attendant, $1) = $1";
    let changed = client.execute_typed(sql, &[(&server, Type::INT8), (&ask.0, Type::UUID)]).await;
    changed.map(|rows| rows > 0).map_err(failed)
}
