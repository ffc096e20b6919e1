//! The verb `queue`: submits requests, and shows and operates queues. `queue take` is in
//! [`queue_take`](crate::queue_take).

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use leasehold_client::NewRequest;
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::{list_lanes_request, list_requests_request};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::contract::object_of;
use crate::error::{CliError, call_failed};
use crate::output::{self, Pages, fields, json_line, line, show_time};
use crate::queue_take::{self, TakeArgs};
use crate::session::{Call, Session};
use crate::update::read;
use crate::words::printable;

/// The rows of a page.
const PAGE: u32 = 1_000;

/// A call of queues.
#[derive(Clone, Debug, Subcommand)]
pub enum QueueVerb {
    /// Submit a request: hand work over to whoever takes from the queue
    Submit(Call<SubmitArgs>),
    /// Run a command for each batch of a queue, and settle the batch by its exit code
    Take(Call<TakeArgs>),
    /// List the lanes of a queue: the keys with requests that wait or are worked
    List(Call<ListArgs>),
    /// List the requests of a key that wait or are worked
    Requests(Call<RequestsArgs>),
    /// List settled requests, the oldest first
    History(Call<HistoryArgs>),
    /// Show a request, or its body
    Show(Call<ShowArgs>),
    /// Show if a queue is paused, its limit, and under a limit how many of its lanes are taken
    Status(Call<StatusArgs>),
    /// Submit a request again whose last attempt has failed
    Resubmit(Call<RequestArgs>),
    /// Withdraw a request that waits
    Withdraw(Call<RequestArgs>),
    /// Hand out nothing more of a queue or of one key; what is taken goes on
    Pause(Call<PauseArgs>),
    /// Hand out again what was paused
    Resume(Call<PauseArgs>),
    /// Set how many lanes of a queue are taken at a time
    Limit(Call<LimitArgs>),
}

/// Arguments of `queue submit`.
#[derive(Clone, Debug, clap::Args)]
pub struct SubmitArgs {
    /// The queue: its parts joined by full stops, such as sheets.refresh
    queue: String,

    /// The key of the resource that the request is about; requests of one key are worked in order
    #[arg(id = "request_key", value_name = "KEY")]
    key: String,

    /// The body
    #[arg(value_name = "BODY", conflicts_with = "file")]
    body: Option<String>,

    /// Read the body from this file; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// The request creates the resource: updates of the key wait for it, and a resource has at most one
    #[arg(long)]
    create: bool,

    /// 0 to 9; each step moves the request one minute ahead of others
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=9))]
    priority: u32,

    /// Do not hand the request out for N seconds
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    delay_seconds: u64,

    /// The number of attempts; the last one that fails ends the request in error
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    max_attempts: u32,

    /// The id of the request; a second submit with the same id makes no second request
    #[arg(long, value_name = "UUID")]
    id: Option<Uuid>,
}

/// A list of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LaneList {
    /// A worker can take them now
    Ready,
    /// Their first request is not due, or was not when it was submitted or failed
    Delayed,
    /// A worker holds them
    Taken,
    /// They are paused
    Paused,
}

/// Arguments of `queue list`.
#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// The queue
    queue: String,

    /// Only these lanes; all if not given
    #[arg(long, value_name = "STATE")]
    state: Option<LaneList>,
}

/// Arguments of `queue requests`.
#[derive(Clone, Debug, clap::Args)]
pub struct RequestsArgs {
    /// The queue
    queue: String,

    /// The key
    #[arg(id = "request_key", value_name = "KEY")]
    key: String,
}

/// Arguments of `queue history`.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryArgs {
    /// The queue; all queues if not given, for administrators
    #[arg(default_value = "")]
    queue: String,

    /// The key; all keys if not given
    #[arg(id = "request_key", value_name = "KEY", default_value = "")]
    key: String,
}

/// Arguments of `queue show`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// The id of the request
    request: Uuid,

    /// Write the body, and nothing else
    #[arg(long)]
    body: bool,
}

/// Arguments of `queue status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// The queue
    queue: String,
}

/// Arguments of `queue resubmit` and `queue withdraw`.
#[derive(Clone, Debug, clap::Args)]
pub struct RequestArgs {
    /// The id of the request
    request: Uuid,
}

/// Arguments of `queue pause` and `queue resume`.
#[derive(Clone, Debug, clap::Args)]
pub struct PauseArgs {
    /// The queue
    queue: String,

    /// The key; the whole queue if not given
    #[arg(id = "request_key", value_name = "KEY", default_value = "")]
    key: String,
}

/// Arguments of `queue limit`.
#[derive(Clone, Debug, clap::Args)]
pub struct LimitArgs {
    /// The queue
    queue: String,

    /// The most lanes that are taken at a time; `none`, or 0, for any number
    #[arg(value_name = "N", value_parser = parse_limit)]
    limit: u32,
}

fn parse_limit(text: &str) -> Result<u32, std::num::ParseIntError> {
    if text == "none" { Ok(0) } else { text.parse() }
}

/// Runs a call of queues.
///
/// # Errors
/// See [`run`](crate::run).
pub(crate) async fn run(verb: QueueVerb, json: bool) -> Result<(), CliError> {
    match verb {
        QueueVerb::Submit(call) => call.run(json, submit).await,
        QueueVerb::Take(call) => call.run(json, queue_take::take).await,
        QueueVerb::List(call) => call.run(json, list).await,
        QueueVerb::Requests(call) => call.run(json, requests).await,
        QueueVerb::History(call) => call.run(json, history).await,
        QueueVerb::Show(call) => call.run(json, show).await,
        QueueVerb::Status(call) => call.run(json, status).await,
        QueueVerb::Resubmit(call) => call.run(json, resubmit).await,
        QueueVerb::Withdraw(call) => call.run(json, withdraw).await,
        QueueVerb::Pause(call) => call.run(json, async |session, args| pause(session, args, false).await).await,
        QueueVerb::Resume(call) => call.run(json, async |session, args| pause(session, args, true).await).await,
        QueueVerb::Limit(call) => call.run(json, limit).await,
    }
}

async fn submit(session: &Session<'_>, args: SubmitArgs) -> Result<(), CliError> {
    let body = match (args.body, args.file) {
        (Some(body), _) => body.into_bytes(),
        (None, Some(path)) => {
            read(&path).map_err(|error| CliError::Usage(format!("cannot read `{}`: {error}", path.display())))?
        }
        (None, None) => Vec::new(),
    };
    let request = if args.create { NewRequest::create(args.key, body) } else { NewRequest::update(args.key, body) };
    let request = request
        .with_priority(args.priority)
        .with_delay(Duration::from_secs(args.delay_seconds))
        .with_max_attempts(args.max_attempts);
    let request = args.id.map_or(request.clone(), |id| request.with_id(id));
    session.open().await?;
    let submitted = session.connection.client()?.submit(&args.queue, &[request]).await.map_err(call_failed)?;
    for submitted in submitted {
        match session.json {
            true => line(&json!({"requestId": submitted.id.to_string(), "isNew": submitted.is_new}).to_string())?,
            false => line(&submitted.id.to_string())?,
        }
        if !submitted.is_new && !session.json {
            eprintln!("this request was submitted before");
        }
    }
    Ok(())
}

/// Returns an id in its text form; empty if there is none.
pub(crate) fn show_id(bytes: &[u8]) -> String {
    Uuid::from_slice(bytes).map(|id| id.to_string()).unwrap_or_default()
}

fn count(number: u64) -> String {
    if number == 0 { String::new() } else { number.to_string() }
}

async fn list(session: &Session<'_>, args: ListArgs) -> Result<(), CliError> {
    use list_lanes_request::List;
    let mut stub = session.open().await?;
    let lists = [
        (LaneList::Ready, List::Ready),
        (LaneList::Delayed, List::Delayed),
        (LaneList::Taken, List::Taken),
        (LaneList::Paused, List::Paused),
    ];
    let mut pages = Pages::new(&["KEY", "STATE", "WAITING", "DUE", "FENCE", "SESSION", "SINCE"]);
    let mut is_empty = true;
    for (name, list) in lists.into_iter().filter(|(name, _)| args.state.is_none_or(|state| state == *name)) {
        let mut after = None;
        loop {
            let request = wire::ListLanesRequest { queue: args.queue.clone(), list: list.into(), limit: PAGE, after };
            let page = session.connection.wait(stub.list_lanes(request)).await?.into_inner();
            is_empty &= page.lanes.is_empty();
            match session.json {
                true => page.lanes.iter().try_for_each(|lane| lane_line(name, lane))?,
                false => pages.write(page.lanes.iter().map(|lane| lane_row(name, lane)))?,
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    if is_empty && !session.json {
        eprintln!("no request of this queue waits or is worked");
    }
    Ok(())
}

fn state_name(list: LaneList) -> &'static str {
    match list {
        LaneList::Ready => "ready",
        LaneList::Delayed => "delayed",
        LaneList::Taken => "taken",
        LaneList::Paused => "paused",
    }
}

fn lane_line(list: LaneList, lane: &wire::Lane) -> Result<(), CliError> {
    let mut object = object_of(lane)?;
    object.insert("sessionId".to_owned(), show_id(&lane.session_id).into());
    object.insert("state".to_owned(), state_name(list).into());
    line(&Value::Object(object).to_string())
}

fn lane_row(list: LaneList, lane: &wire::Lane) -> Vec<String> {
    vec![
        printable(&lane.key),
        // The lists follow each other, so the column has the width of the longest name from the first one on.
        format!("{:<7}", state_name(list)),
        lane.waiting.to_string(),
        show_time(lane.not_before.as_ref()),
        count(lane.fence),
        show_id(&lane.session_id),
        show_time(lane.taken_at.as_ref().or(lane.updated_at.as_ref())),
    ]
}

async fn requests(session: &Session<'_>, args: RequestsArgs) -> Result<(), CliError> {
    use list_requests_request::List;
    let lists = [List::Taken, List::Waiting];
    show_requests(session, (args.queue, args.key), &lists, "no request of this key waits or is worked").await
}

async fn history(session: &Session<'_>, args: HistoryArgs) -> Result<(), CliError> {
    let lists = [list_requests_request::List::Settled];
    show_requests(session, (args.queue, args.key), &lists, "no settled request is kept").await
}

async fn show_requests(
    session: &Session<'_>,
    (queue, key): (String, String),
    lists: &[list_requests_request::List],
    nothing: &str,
) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let mut pages =
        Pages::new(&["REQUEST", "KEY", "KIND", "STATE", "ATTEMPTS", "BYTES", "DUE", "SUBMITTED", "CHANGED"]);
    let mut is_empty = true;
    for list in lists {
        let mut after = None;
        loop {
            let (queue, key) = (queue.clone(), key.clone());
            let request = wire::ListRequestsRequest { queue, key, list: (*list).into(), limit: PAGE, after };
            let page = session.connection.wait(stub.list_requests(request)).await?.into_inner();
            is_empty &= page.requests.is_empty();
            match session.json {
                true => page.requests.iter().try_for_each(request_line)?,
                false => pages.write(page.requests.iter().map(request_row))?,
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    if is_empty && !session.json {
        eprintln!("{nothing}");
    }
    Ok(())
}

fn request_object(request: &wire::Request) -> Result<Value, CliError> {
    let mut object = object_of(request)?;
    object.insert("requestId".to_owned(), show_id(&request.request_id).into());
    Ok(Value::Object(object))
}

fn request_line(request: &wire::Request) -> Result<(), CliError> {
    line(&request_object(request)?.to_string())
}

fn kind_name(kind: wire::RequestKind) -> String {
    kind.as_str_name().to_lowercase()
}

/// Returns the name of a state as seed 001 writes it.
fn request_state(state: wire::RequestState) -> &'static str {
    match state {
        wire::RequestState::Unspecified => "unknown",
        wire::RequestState::New => "new",
        wire::RequestState::InProgress => "in-progress",
        wire::RequestState::Complete => "complete",
        wire::RequestState::Error => "error",
    }
}

fn request_row(request: &wire::Request) -> Vec<String> {
    vec![
        show_id(&request.request_id),
        printable(&request.key),
        kind_name(request.kind()),
        request_state(request.state()).to_owned(),
        format!("{}/{}", request.attempts, request.max_attempts),
        request.body_bytes.to_string(),
        show_time(request.not_before.as_ref()),
        show_time(request.submitted_at.as_ref()),
        show_time(request.updated_at.as_ref()),
    ]
}

async fn show(session: &Session<'_>, args: ShowArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let request = wire::GetRequestRequest { request_id: args.request.as_bytes().to_vec(), with_body: args.body };
    let answer = session.connection.wait(stub.get_request(request)).await?.into_inner();
    let found = answer.request.ok_or_else(|| no_request(args.request))?;
    if args.body {
        return Ok(std::io::stdout().lock().write_all(&answer.body)?);
    }
    if session.json {
        return request_line(&found);
    }
    fields(&[
        ("request", show_id(&found.request_id)),
        ("queue", found.queue.clone()),
        ("key", printable(&found.key)),
        ("kind", kind_name(found.kind())),
        ("state", request_state(found.state()).to_owned()),
        ("priority", count(found.priority.into())),
        ("attempts", format!("{} of at most {}", found.attempts, found.max_attempts)),
        ("body", format!("{} bytes", found.body_bytes)),
        ("due", show_time(found.not_before.as_ref())),
        ("submitted", show_time(found.submitted_at.as_ref())),
        ("changed", show_time(found.updated_at.as_ref())),
    ])
}

fn no_request(id: Uuid) -> CliError {
    CliError::Unfit(format!("there is no request {id}: it was withdrawn or forgotten, or never was"))
}

async fn status(session: &Session<'_>, args: StatusArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let request = wire::GetQueueRequest { queue: args.queue.clone() };
    let queue = session.connection.wait(stub.get_queue(request)).await?.into_inner();
    if session.json {
        return json_line(&queue);
    }
    let limit = if queue.limit == 0 { "none".to_owned() } else { queue.limit.to_string() };
    let taken = if queue.limit == 0 { String::new() } else { queue.taken.to_string() };
    let paused = if queue.is_paused { "yes" } else { "no" }.to_owned();
    fields(&[("queue", args.queue), ("paused", paused), ("limit", limit), ("taken", taken)])
}

async fn resubmit(session: &Session<'_>, args: RequestArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let request = wire::ResubmitRequest { request_id: args.request.as_bytes().to_vec() };
    let found = session.connection.wait(stub.resubmit_request(request)).await.map_err(CliError::for_admins)?;
    tell_found(session, args.request, found.into_inner().found(), (wire::RequestState::Error, "submitted again"))
}

async fn withdraw(session: &Session<'_>, args: RequestArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let request = wire::WithdrawRequest { request_id: args.request.as_bytes().to_vec() };
    let found = session.connection.wait(stub.withdraw_request(request)).await.map_err(CliError::for_admins)?;
    tell_found(session, args.request, found.into_inner().found(), (wire::RequestState::New, "withdrawn"))
}

/// Tells what a call did to a request that it found in a state: it acts on those in state `acted_on`.
fn tell_found(
    session: &Session<'_>,
    id: Uuid,
    found: wire::RequestState,
    (acted_on, done): (wire::RequestState, &str),
) -> Result<(), CliError> {
    if found == wire::RequestState::Unspecified {
        return Err(no_request(id));
    }
    if session.json {
        output::line(&json!({"requestId": id.to_string(), "found": request_state(found)}).to_string())?;
    }
    if found != acted_on {
        let (state, wanted) = (request_state(found), request_state(acted_on));
        return Err(CliError::Unfit(format!("the request is {state}, not {wanted}: it is left as it is")));
    }
    if !session.json {
        eprintln!("the request is {done}");
    }
    Ok(())
}

async fn pause(session: &Session<'_>, args: PauseArgs, resume: bool) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let request = wire::PauseRequest { queue: args.queue, key: args.key, resume };
    session.connection.wait(stub.pause_queue(request)).await.map_err(CliError::for_admins)?;
    if !session.json {
        eprintln!("{}", if resume { "requests are handed out again" } else { "paused: what is taken goes on" });
    }
    Ok(())
}

async fn limit(session: &Session<'_>, args: LimitArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let request = wire::SetLimitRequest { queue: args.queue, limit: args.limit };
    session.connection.wait(stub.limit_queue(request)).await.map_err(CliError::for_admins)?;
    match args.limit {
        _ if session.json => {}
        0 => eprintln!("any number of lanes is taken at a time"),
        1 => eprintln!("from now on, at most one lane is taken at a time"),
        limit => eprintln!("from now on, at most {limit} lanes are taken at a time"),
    }
    Ok(())
}
