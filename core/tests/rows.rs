//! A second family of row kinds that has one more kind, which no command knows. The family shows
//! how much code a new kind takes. Rows of the new kind go through a workspace and the reference
//! store like those of every other kind.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code, reason = "tests")]

use std::ops::Bound::{self, Excluded, Included, Unbounded};

use leasehold_core::rows::{NotLoaded, OrderedRead, RowKind};

/// A ticket in a lane. Waiting tickets are listed by lane and number; a ticket that a worker has
/// taken is in no list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ticket {
    lane: u8,
    is_taken: bool,
}

impl RowKind for Ticket {
    const NAME: &'static str = "tickets";
    type Key = u32;
    type Position = (u8, u32);

    fn position(number: &u32, ticket: &Self) -> Option<(u8, u32)> {
        (!ticket.is_taken).then_some((ticket.lane, *number))
    }
}

mod family {
    use std::collections::BTreeMap;

    use leasehold_core::claim::Claim;
    use leasehold_core::lease::{Fence, Lease, Replay};
    use leasehold_core::rows::{Key, Loaded, OrderedRead, RowChange, RowKind, Table, WrittenRow};

    use super::Ticket;

    leasehold_core::row_family! {
        /// Rows of the kind `Claim`.
        claims: Claim,
        /// Rows of the kind `Lease`.
        leases: Lease,
        /// Rows of the kind `Replay`.
        replays: Replay,
        /// Rows of the new kind `Ticket`.
        tickets: Ticket,
        ;
        /// The first waiting tickets of a lane.
        tickets_of_lane: Ticket
    }
}

use family::{AnyRow, Changes, Keys, Kind, NetChanges, State, Tables, Workspace};

const NOT_LOADED: NotLoaded = NotLoaded("tickets");

fn waiting(lane: u8) -> Ticket {
    Ticket { lane, is_taken: false }
}

/// Returns a store with the waiting tickets 1 to 9. Their lanes are 1, 2, 0, 1, 2, 0 and so on.
fn store() -> Tables {
    let mut store = Tables::default();
    let tickets = (1..=9).map(|number| (number, Some(waiting((number % 3) as u8)))).collect();
    store.write_rows(Changes { tickets, ..Changes::default() });
    store
}

fn keys(tickets: &[u32]) -> Keys {
    Keys { tickets: tickets.to_vec(), ..Keys::default() }
}

fn missing(workspace: &Workspace, tickets: &[u32]) -> Vec<u32> {
    let mut keys = keys(tickets);
    workspace.drop_loaded(&mut keys);
    keys.tickets
}

fn changes(tickets: &[(u32, Option<Ticket>)]) -> Changes {
    Changes { tickets: tickets.to_vec(), ..Changes::default() }
}

fn lane(lane: u8, limit: usize) -> OrderedRead<Ticket> {
    OrderedRead { from: Included((lane, 0)), to: Included((lane, u32::MAX)), limit }
}

/// Loads the first waiting tickets of a lane into a workspace, as a host does.
fn load_lane(store: &Tables, read: &OrderedRead<Ticket>, into: &mut Workspace) {
    Ticket::loaded_mut(into).load_first(read, Ticket::table(store).first(read));
}

fn first(workspace: &Workspace, read: &OrderedRead<Ticket>) -> Result<Vec<u32>, NotLoaded> {
    Ticket::loaded(workspace).first(read)
}

#[test]
fn a_new_kind_is_loaded_changed_and_saved_like_the_others() {
    let mut store = store();
    let mut workspace = Workspace::default();
    assert_eq!(missing(&workspace, &[1, 2, 99]), [1, 2, 99]);
    store.load_rows(keys(&[1, 2, 99]), &mut workspace);
    assert_eq!(missing(&workspace, &[1, 2, 3, 99]), [3]);
    assert_eq!(Ticket::loaded(&workspace).row(&1), Ok(Some(&waiting(1))));
    assert_eq!(Ticket::loaded(&workspace).row(&99), Ok(None));
    assert_eq!(Ticket::loaded(&workspace).row(&3), Err(NOT_LOADED));
    workspace.write_rows(changes(&[(1, None), (2, Some(waiting(7))), (99, Some(waiting(0)))]));
    workspace.write_rows(changes(&[(2, Some(waiting(2)))]));
    assert!(workspace.is_any_written(&keys(&[99])));
    let net = workspace.net();
    let changed: Vec<_> = net.tickets.iter().map(|change| change.key).collect();
    assert_eq!(changed, [1, 99], "ticket 2 is as it was");
    assert_eq!(NetChanges { tickets: vec![], ..net.clone() }, NetChanges::default());
    store.save_rows(&net);
    let mut expected = State::default();
    for number in (2..=9).chain([99]) {
        expected.insert_row(AnyRow::Ticket(number, waiting((number % 3) as u8)));
    }
    assert_eq!(store.sorted(), expected);
}

#[test]
fn an_ordered_read_returns_the_first_rows_of_a_range() {
    let store = store();
    let read = |from: Bound<(u8, u32)>, to: Bound<(u8, u32)>, limit| {
        let rows = Ticket::table(&store).first(&OrderedRead { from, to, limit });
        rows.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    assert_eq!(read(Unbounded, Unbounded, 4), [3, 6, 9, 1]);
    assert_eq!(read(Included((1, 4)), Excluded((2, 5)), 9), [4, 7, 2]);
    assert_eq!(read(Excluded((1, 4)), Included((2, 5)), 9), [7, 2, 5]);
    assert_eq!(read(Included((2, 9)), Included((1, 0)), 9), [0; 0]);
    assert_eq!(read(Unbounded, Unbounded, 0), [0; 0]);
}

#[test]
fn an_ordered_read_of_a_workspace_sees_the_changes_of_earlier_commands() {
    let store = store();
    let mut workspace = Workspace::default();
    assert_eq!(first(&workspace, &lane(1, 2)), Err(NOT_LOADED));
    load_lane(&store, &lane(1, 3), &mut workspace);
    assert_eq!(first(&workspace, &lane(1, 2)), Ok(vec![1, 4]));
    workspace.write_rows(changes(&[(1, Some(Ticket { lane: 1, is_taken: true }))]));
    assert_eq!(first(&workspace, &lane(1, 2)), Ok(vec![4, 7]));
    workspace.write_rows(changes(&[(2, Some(waiting(1)))]));
    assert_eq!(first(&workspace, &lane(1, 2)), Ok(vec![2, 4]));
    workspace.write_rows(changes(&[(4, None)]));
    assert_eq!(first(&workspace, &lane(1, 2)), Ok(vec![2, 7]));
    assert_eq!(first(&workspace, &lane(0, 1)), Err(NOT_LOADED), "another lane was not loaded");
}

#[test]
fn an_ordered_read_is_refused_where_the_store_may_have_more_rows() {
    let store = store();
    let mut workspace = Workspace::default();
    load_lane(&store, &lane(1, 2), &mut workspace);
    assert_eq!(first(&workspace, &lane(1, 2)), Ok(vec![1, 4]));
    assert_eq!(first(&workspace, &lane(1, 3)), Err(NOT_LOADED));
    workspace.write_rows(changes(&[(1, None)]));
    assert_eq!(first(&workspace, &lane(1, 1)), Ok(vec![4]));
    assert_eq!(first(&workspace, &lane(1, 2)), Err(NOT_LOADED), "ticket 7 is not loaded");
    load_lane(&store, &lane(1, 4), &mut workspace);
    assert_eq!(first(&workspace, &lane(1, 4)), Ok(vec![4, 7]), "the store has no more, and ticket 1 stays deleted");
}

#[test]
fn a_row_that_moves_is_found_in_its_new_place_alone() {
    let store = store();
    let mut workspace = Workspace::default();
    for number in [0, 1] {
        load_lane(&store, &lane(number, 9), &mut workspace);
    }
    workspace.write_rows(changes(&[(6, Some(waiting(1)))]));
    assert_eq!(first(&workspace, &lane(0, 9)), Ok(vec![3, 9]));
    assert_eq!(first(&workspace, &lane(1, 9)), Ok(vec![1, 4, 6, 7]));
}
