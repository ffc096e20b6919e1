// Plays the guided tour, and holds each sentence of its steps against the world from the event on at
// which it is shown.
import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { partsOf } from "../../src/model/events";
import { layOutLanes } from "../../src/model/lanes";
import { hasLeaseRow, viewAt } from "../../src/model/moment";
import type { CellView, Entry, LeaseView, View } from "../../src/model/protocol";
import { RULE_NAMES } from "../../src/model/texts";
import { textOf, TOUR, type TourStep } from "../../src/model/tour";
import { replay } from "../../src/session/loading";
import { sentencesOf } from "./sentences";

/** A played step: the worlds before and after its events, and all events up to its end. */
interface Played {
    step: TourStep;
    start: View;
    end: View;
    entries: Entry[];
    /** Plays further steps of cell 2's worker, and returns the world after them. */
    continueInCell2: () => View;
}

function play(step: TourStep): Played {
    const trace = scenarios().find(({ id }) => id === step.scenario)?.trace;
    if (trace === undefined) throw new Error(`there is no scenario ${step.scenario}`);
    const { simulation } = replay(new Simulation({ ...trace.settings, rules_off: step.rulesOff ?? [] }), trace.events);
    const continueInCell2 = () => {
        simulation.seek(step.to);
        simulation.apply({ step: { cell: 2, process: { worker: 0 } } });
        simulation.apply({ finish_commit: { cell: 2, worker: 0 } });
        return simulation.view();
    };
    return { step, start: viewAt(simulation, step.from), end: viewAt(simulation, step.to), entries: simulation.entries(0, step.to), continueInCell2 };
}

const cellOf = (view: View, number: number): CellView | undefined => view.cells.find(({ cell }) => cell === number);
const workerOf = (view: View, number: number) => cellOf(view, number)?.workers[0];
const lease = (view: View): LeaseView | undefined => view.leases.at(-1);
const claim = (view: View) => view.claims.find(({ name }) => name === "alice");
const rowsOf = (view: View, number: number) => cellOf(view, number)?.rows.map(({ name }) => name) ?? [];
const wantsAlice = (view: View, number: number) => JSON.stringify(workerOf(view, number)?.change) === '{"create":0}';
const eventsOf = ({ entries, step }: Played) => entries.slice(step.from);
const kinds = (played: Played) => eventsOf(played).map(({ event }) => partsOf(event).kind);
const says = (played: Played) => eventsOf(played).map((entry) => entry.says).join("\n");
const hasNoRow = (view: View) => rowsOf(view, 1).length === 0 && cellOf(view, 1)?.lease_rows.length === 0;

/** The sentences of the tour, each with the played step in which it holds. */
const STATEMENTS: [RegExp, (it: Played) => boolean][] = [
    [/^A user of cell 1 and a user of cell 2 both ask/u, ({ end }) => wantsAlice(end, 1) && wantsAlice(end, 2)],
    [/^Still, only one of the two/u, ({ end }) => end.claims.length === 0 && end.cells.length === 2],
    [/^First, cell 1 alone/u, ({ end }) => wantsAlice(end, 1) && workerOf(end, 2)?.phase === undefined],
    [/^Its worker has asked the service for a lease on alice/u, (it) => says(it).includes("cell 1's worker 0 sends begin: create alice")],
    [/^The service now holds the name for this lease/u, ({ end }) => claim(end)?.lease === lease(end)?.lease && claim(end)?.status === "Creating"],
    [/^The lease is outstanding: it is not yet decided/u, ({ end }) => lease(end)?.status === "Outstanding" && hasNoRow(end) && wantsAlice(end, 1)],
    [/^One local COMMIT has saved two rows in cell 1's database: alice's row and the lease row/u, (it) => hasNoRow(it.start) && rowsOf(it.end, 1).includes("alice") && hasLeaseRow(it.end, lease(it.end)?.lease) && kinds(it).filter((kind) => kind === "finish_commit").length === 1],
    [/^So the lease row is there exactly if alice was saved/u, ({ entries, end }) => entries.filter(({ event }) => partsOf(event).kind === "finish_commit").length === 1 && cellOf(end, 1)?.rows.length === cellOf(end, 1)?.lease_rows.length],
    [/^The worker has told the service to commit the lease/u, (it) => says(it).includes("cell 1's worker 0 sends commit of lease 1") && lease(it.end)?.status === "Committed"],
    [/^The claim is active now: alice belongs to cell 1/u, ({ end }) => claim(end)?.status === "Active" && claim(end)?.cell === 1],
    [/so the worker has deleted it\.$/u, ({ start, end }) => hasLeaseRow(start, lease(start)?.lease) && !hasLeaseRow(end, lease(end)?.lease)],
    [/^The user is told that the row is saved/u, ({ end }) => workerOf(end, 1)?.told === "saved" && rowsOf(end, 1).includes("alice")],
    [/the worker dies right after its local COMMIT/u, (it) => kinds(it).slice(-2).join(" ") === "finish_commit crash"],
    [/^Nobody has told the service, so the lease is still outstanding/u, (it) => lease(it.end)?.status === "Outstanding" && !says(it).includes("commit of lease") && it.end.messages.length === 0],
    [/^Was alice saved\?/u, ({ end }) => rowsOf(end, 1).includes("alice")],
    [/^Eleven minutes have passed, and the lease is stale/u, (it) => eventsOf(it).some(({ event }) => JSON.stringify(event) === '{"wait":{"seconds":660}}')],
    [/^Cell 1's reconciler has asked the service for outstanding leases/u, (it) => says(it).includes("cell 1's reconciler 0 asks for its outstanding leases")],
    [/^Then it has looked for the lease row in its own database/u, (it) => says(it).includes("cell 1's reconciler 0 looks up its rows of these leases")],
    [/^The row is there, so alice was saved/u, ({ end }) => hasLeaseRow(end, lease(end)?.lease) && rowsOf(end, 1).includes("alice")],
    [/^Therefore the lease is committed now, although the worker died/u, (it) => lease(it.start)?.status === "Outstanding" && lease(it.end)?.status === "Committed" && it.entries.some(({ event }) => partsOf(event).kind === "crash")],
    [/^This time the worker died before its COMMIT/u, (it) => kinds(it).includes("crash") && !it.entries.some(({ event }) => partsOf(event).kind === "finish_commit")],
    [/^The database has dropped both rows: alice's row and the lease row/u, ({ start, end }) => cellOf(start, 1)?.transactions[0]?.lease !== undefined && cellOf(start, 1)?.transactions[0]?.writes.length === 1 && hasNoRow(end) && cellOf(end, 1)?.transactions.length === 0],
    [/^The reconciler has found no lease row, so alice was not saved/u, (it) => says(it).includes("reconciler 0 sends rollback of lease 1") && hasNoRow(it.end)],
    [/^Therefore the lease is rolled back, and the name is free again/u, ({ start, end }) => lease(end)?.status === "RolledBack" && claim(start) !== undefined && claim(end) === undefined],
    [/^Back to the two users who want one name/u, ({ start }) => wantsAlice(start, 1) && wantsAlice(start, 2)],
    [/^The request of cell 1 came first, and got the lease/u, ({ end }) => lease(end)?.cell === 1 && lease(end)?.status === "Outstanding" && end.leases.length === 1],
    [/^The request of cell 2 is refused, because another lease holds the name/u, (it) => eventsOf(it).some((entry) => entry.refused === true && entry.says.includes("cell 2's worker 0: begin")) && claim(it.end)?.lease === lease(it.end)?.lease],
    [/^Its user is told to try another time/u, ({ end }) => JSON.stringify(workerOf(end, 2)?.told) === '{"refused":"CLAIM_BUSY"}'],
    [/^This is the rule “(.*)”/u, ({ step }) => textOf(step).includes(`“${RULE_NAMES.lease_exclusivity.toLowerCase()}”`)],
    [/^Break it, and see the damage/u, ({ step }) => step.next === "Switch the rule off" && TOUR[TOUR.indexOf(step) + 1]?.rulesOff?.[0] === "lease_exclusivity"],
    [/^Now both cells have a lease on alice/u, ({ end }) => end.leases.filter(({ names, status }) => names.includes("alice") && status === "Outstanding").map(({ cell }) => cell).join() === "1,2"],
    [/^Cell 1 has committed its row, but the claim is cell 2's/u, ({ end }) => rowsOf(end, 1).includes("alice") && claim(end)?.cell === 2],
    [/^That violates an invariant: each row needs its claim/u, ({ start, end }) => start.violation === undefined && end.violation?.[1] === "row 1 of cell 1 is committed as `alice`, but has no claim"],
    [/^Cell 2 can commit too: then alice has two rows/u, ({ continueInCell2 }) => [1, 2].every((cell) => rowsOf(continueInCell2(), cell).includes("alice"))],
];

/** The sentences of the tour that say nothing about the present state. */
const GENERAL = [
    "Each cell saves its users in its own database.",
    "No transaction spans both databases.",
    "Until then, no other lease can get the name.",
    "A COMMIT saves all of its rows or none.",
    "That is why it lies in the cell's own database: at the service, no COMMIT could write it together with alice's row.",
    "The service cannot look into cell 1's database, so it cannot know.",
    "Break others under “Rules”.",
];

/** Returns the sentences of a part that do not hold after the played events. */
function complaintsAbout(part: string, step: TourStep, played: Played): string[] {
    return sentencesOf(part).flatMap((sentence) => {
        const [statement] = STATEMENTS.filter(([pattern]) => pattern.test(sentence));
        if (statement === undefined) return GENERAL.includes(sentence) ? [] : [`unchecked: ${sentence}`];
        return statement[1]({ ...played, step }) ? [] : [`false at ${played.step.to}: ${sentence}`];
    });
}

const STEPS = TOUR.map((step, index) => [index + 1, step.title, step] as const);

describe("the guided tour", () => {
    test("has eight to ten steps", () => {
        expect(TOUR.length).toBeGreaterThanOrEqual(8);
        expect(TOUR.length).toBeLessThanOrEqual(10);
    });

    test.each(STEPS)("says the truth in step %i, %s", (_, __, step) => {
        const complaints = step.text.flatMap(([from, part]) => [...new Set([from, step.to])].flatMap((to) => complaintsAbout(part, step, play({ ...step, to }))));
        expect(complaints).toEqual([]);
    });

    test.each(STEPS)("shows its text in order, and all of it at the end of step %i, %s", (_, __, step) => {
        const positions = step.text.map(([from]) => from);
        expect(positions).toEqual([...new Set(positions)].sort((one, other) => one - other));
        expect(positions.every((from) => from >= step.from && from <= step.to)).toBe(true);
    });

    test.each(STEPS)("points only at parts that exist at the end of step %i, %s", (_, __, step) => {
        const { end } = play(step);
        const cells = end.cells.map(({ cell }) => cell);
        const { lanes } = layOutLanes({ cells, workers: 1, reconcilers: 1, hasVerifier: true }, 800);
        const tables = cells.flatMap((cell) => [`table rows:${cell}`, `table lease_rows:${cell}`]);
        const known = [...lanes.map(({ key }) => `lane ${key}`), "table claims", "table leases", ...tables];
        expect(step.places.filter((place) => !known.includes(place))).toEqual([]);
    });

    test.each(STEPS)("uses sentences of at most 25 words in step %i, %s", (_, __, step) => {
        expect(sentencesOf(textOf(step)).filter((sentence) => sentence.split(/\s+/u).length > 25)).toEqual([]);
    });

    test("shows a violation in its last step alone", () => {
        expect(TOUR.map((step) => play(step).end.violation !== undefined)).toEqual(TOUR.map((step) => step === TOUR.at(-1)));
    });
});
