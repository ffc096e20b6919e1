// The guided tour: the steps that explain the protocol to people who open the page for the first
// time. Each sentence must hold from the position on at which it is shown: `tests/truth/tour.test.ts`
// tells when.
import type { Rule } from "./protocol";

/** A part of the page that a step points at: a table, or the lane of a participant (its key). */
export type Place = `table ${string}` | `lane ${string}`;

/** A step of the tour: one idea, and the events of a scenario that show it. */
export interface TourStep {
    title: string;
    /** The text in parts, each with the position from which it holds. The page then shows it. */
    text: readonly (readonly [from: number, part: string])[];
    /** The id of the scenario whose events are played. */
    scenario: string;
    rulesOff?: Rule[];
    /** The positions at which playback of the step starts and stops. */
    from: number;
    to: number;
    places: Place[];
    /** The label of the button to the next step, if it does more than to go on. */
    next?: string;
    /** The label of the button to the step before, if it does more than to go back. */
    back?: string;
}

/** The steps of the tour, in the order of the story. */
export const TOUR: readonly TourStep[] = [
    {
        title: "One name, two databases",
        text: [
            [2, "A user of cell 1 and a user of cell 2 both ask for the name alice. Each cell saves its users in its own database. No transaction spans both databases. Still, only one of the two may become alice."],
        ],
        scenario: "concurrent-creation",
        from: 0,
        to: 2,
        places: ["lane user:1", "lane user:2", "lane database:1", "lane database:2"],
    },
    {
        title: "The lease",
        text: [
            [1, "First, cell 1 alone."],
            [5, "Its worker has asked the service for a lease on alice."],
            [6, "The service now holds the name for this lease. The lease is outstanding: it is not yet decided if the user is saved. Until then, no other lease can get the name."],
        ],
        scenario: "2a",
        from: 1,
        to: 7,
        places: ["lane worker:1:0", "lane service", "table claims", "table leases"],
    },
    {
        title: "One COMMIT, two rows",
        text: [
            [10, "One local COMMIT has saved two rows in cell 1's database: alice's row and the lease row. A COMMIT saves all of its rows or none. So the lease row is there exactly if alice was saved. That is why it lies in the cell's own database: at the service, no COMMIT could write it together with alice's row."],
        ],
        scenario: "2a",
        from: 7,
        to: 10,
        places: ["lane database:1", "table rows:1", "table lease_rows:1"],
    },
    {
        title: "The commit of the lease",
        text: [
            [12, "The worker has told the service to commit the lease. The claim is active now: alice belongs to cell 1."],
            [14, "The lease row has done its work, so the worker has deleted it. The user is told that the row is saved."],
        ],
        scenario: "2a",
        from: 10,
        to: 14,
        places: ["lane worker:1:0", "lane service", "table claims", "table leases", "table lease_rows:1"],
    },
    {
        title: "A crash between the two commits",
        text: [
            [11, "The same save again, but the worker dies right after its local COMMIT. Nobody has told the service, so the lease is still outstanding there. Was alice saved? The service cannot look into cell 1's database, so it cannot know."],
        ],
        scenario: "4a",
        from: 8,
        to: 11,
        places: ["lane worker:1:0", "lane service", "table leases", "table lease_rows:1"],
    },
    {
        title: "Reconciliation finds the lease row",
        text: [
            [12, "Eleven minutes have passed, and the lease is stale."],
            [13, "Cell 1's reconciler has asked the service for outstanding leases."],
            [16, "Then it has looked for the lease row in its own database. The row is there, so alice was saved."],
            [18, "Therefore the lease is committed now, although the worker died."],
        ],
        scenario: "4a",
        from: 11,
        to: 18,
        places: ["lane reconciler:1:0", "lane database:1", "table leases", "table lease_rows:1"],
    },
    {
        title: "No lease row, no save",
        text: [
            [9, "This time the worker died before its COMMIT. The database has dropped both rows: alice's row and the lease row."],
            [21, "The reconciler has found no lease row, so alice was not saved."],
            [22, "Therefore the lease is rolled back, and the name is free again."],
        ],
        scenario: "3b",
        from: 8,
        to: 22,
        places: ["lane reconciler:1:0", "lane database:1", "table claims", "table leases", "table lease_rows:1"],
    },
    {
        title: "Two cells race",
        text: [
            [2, "Back to the two users who want one name."],
            [11, "The request of cell 1 came first, and got the lease."],
            [12, "The request of cell 2 is refused, because another lease holds the name."],
            [14, "Its user is told to try another time. This is the rule “leases exclude each other”. Break it, and see the damage."],
        ],
        scenario: "concurrent-creation",
        from: 2,
        to: 14,
        places: ["lane service", "lane worker:2:0", "table claims", "table leases"],
        next: "Switch the rule off",
    },
    {
        title: "The same race without the rule",
        text: [
            [12, "Now both cells have a lease on alice."],
            [18, "Cell 1 has committed its row, but the claim is cell 2's. That violates an invariant: each row needs its claim. Cell 2 can commit too: then alice has two rows. Break others under “Rules”."],
        ],
        scenario: "concurrent-creation",
        rulesOff: ["lease_exclusivity"],
        from: 10,
        to: 18,
        places: ["lane database:1", "table claims", "table leases", "table rows:1"],
        back: "Switch it on",
    },
];

/** Returns the whole text of a step. */
export function textOf({ text }: TourStep): string {
    return text.map(([, part]) => part).join(" ");
}

/** Returns the step with this number, or `undefined` if there is none. The numbers start at 1. */
export function tourStep(number: number | undefined): TourStep | undefined {
    return number === undefined ? undefined : TOUR[number - 1];
}
