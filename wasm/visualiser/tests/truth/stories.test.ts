// Holds the titles and the groups of the stories against their scenarios.
import { Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { partsOf } from "../../src/model/events";
import { viewAt } from "../../src/model/moment";
import type { Entry, View } from "../../src/model/protocol";
import { SCENARIOS, scenarioById, STORY_GROUPS } from "../../src/model/scenarios";

/** A played story: its events, and the world at the end of its set-up and of its events. */
interface Played {
    entries: Entry[];
    setUp: View;
    end: View;
}

function play(id: string, setUp: number): Played {
    const simulation = Simulation.load(JSON.stringify(scenarioById(id)?.trace));
    const played = { entries: simulation.entries(0, simulation.length), setUp: viewAt(simulation, setUp), end: viewAt(simulation, simulation.length) };
    simulation.free();
    return played;
}

const STORIES = STORY_GROUPS.flatMap((group) => group.stories.map((story) => ({ ...story, group: group.title, played: play(story.id, story.setUp) })));

const kinds = ({ entries }: Played) => entries.map(({ event }) => partsOf(event).kind);
const countOf = (played: Played, kind: string) => kinds(played).filter((one) => one === kind).length;
const says = (played: Played, text: string) => played.entries.filter((entry) => entry.says.includes(text)).length;
const isBefore = (played: Played, first: string, second: string) => kinds(played).indexOf(first) >= 0 && (kinds(played).indexOf(second) < 0 || kinds(played).indexOf(first) < kinds(played).indexOf(second));
const saved = ({ end }: Played, cell: number, name: string) => end.cells[cell - 1]?.rows.some((row) => row.name === name) === true && end.claims.some((claim) => claim.name === name && claim.cell === cell && claim.status === "Active");
const refusals = ({ entries }: Played) => entries.filter(({ refused }) => refused).length;
const holder = ({ setUp }: Played) => setUp.locks?.locks[0]?.status;
const isFirstHolder = (view: View) => view.locks?.locks[0]?.status === "Held" && view.locks.locks[0].fence === 1;

/** The titles of the stories, each with the run in which it is true. */
const TITLES: Record<string, (it: Played) => boolean> = {
    "Alice signs up": (it) => saved(it, 1, "alice") && countOf(it, "save") === 1,
    "Alice and Bob in one save, the lease first": (it) => saved(it, 1, "alice") && saved(it, 1, "bob") && countOf(it, "save") === 1 && it.entries.findIndex((entry) => entry.says.includes("sends begin")) < it.entries.findIndex((entry) => entry.says.includes("begins its local transaction")),
    "Two clients, one lock": (it) => it.end.locks?.locks.length === 1 && it.end.cells.length === 2,
    "Two workers, two spreadsheets": (it) => it.end.cells.length === 2 && ["blue", "green"].every((sheet) => says(it, `create of ${sheet} to the sheet`) === 1),
    "Three updates, one write": (it) => says(it, "writes 3 updates of blue") === 1,
    "An invalid save stays in its cell": (it) => says(it, "the user is told: invalid") === 1 && it.entries.every(({ sent }) => sent.length === 0),
    "The answer to Alice's worker is lost": (it) => says(it, "the network loses a message to cell 1's worker 0") === 1 && saved(it, 1, "alice"),
    "The answer is lost twice": (it) => says(it, "the network loses a message to cell 1's worker 0") === 2,
    "The database refuses Alice's new name": (it) => says(it, "rename row 1 (alice) to bob") === 1 && says(it, "writes its rows, which its database refuses") === 1,
    "Alice's worker dies before its COMMIT": (it) => isBefore(it, "crash", "finish_commit") && says(it, "create alice") > 0,
    "Alice's worker dies after its COMMIT": (it) => isBefore(it, "finish_commit", "crash") && countOf(it, "crash") === 1 && saved(it, 1, "alice"),
    "The service is down after Alice's COMMIT": (it) => isBefore(it, "finish_commit", "stop_service") && saved(it, 1, "alice"),
    "Alice's lease row is left behind": (it) => saved(it, 1, "alice") && it.setUp.leases[0]?.status === "Committed" && it.setUp.cells[0]?.lease_rows.length === 1,
    "The holder of a lock dies": (it) => says(it, "cell 1's client crashes") === 1 && isFirstHolder(it.setUp),
    "The service restarts under a lock": (it) => countOf(it, "stop_service") === 1 && countOf(it, "start_service") === 1 && isFirstHolder(it.setUp),
    "A worker of the queue dies": (it) => countOf(it, "crash") === 1,
    "A request ends its workers": (it) => says(it, "works on the poison of blue, and dies of it") > 1,
    "Somebody else has alice already": (it) => it.setUp.claims.some(({ name, cell, status }) => name === "alice" && cell === 1 && status === "Active") && says(it, "a user of cell 2 asks worker 0 to create alice") === 1 && refusals(it) === 1,
    "A rename meets a deletion": (it) => says(it, "to rename row 1 (alice)") === 1 && says(it, "to delete row 1 (alice)") === 1 && refusals(it) === 1,
    "Bob and Carol both want Alice's name": (it) => ["bob", "carol"].every((name) => it.entries.some((entry) => entry.says.includes("delete row 1 (alice) and give its name to row") && entry.says.endsWith(`(${name})`))),
    "Three wait for one lock": (it) => it.setUp.locks?.locks.length === 1 && it.end.cells.length === 4 && holder(it) === "Held",
    "Two users want alice at once": (it) => it.entries.slice(0, 2).every((entry) => entry.says.endsWith("to create alice")),
    "Alice's worker sleeps through its lease": (it) => says(it, "is refused: its lease is too old") === 1 && it.setUp.leases[0]?.status === "Outstanding",
    "The holder of a lock wakes too late": (it) => countOf(it, "pause") === 1 && says(it, "has seen a newer fence and refuses") === 1,
    "A worker of the queue wakes too late": (it) => countOf(it, "pause") === 1 && says(it, "the client stops: its session is lost") === 1,
};

/** The groups, each with the runs that belong to it. */
const GROUPS: Record<string, (it: Played) => boolean> = {
    "It works": (it) => it.entries.every(({ fault, refused }) => !fault && !refused),
    "It fails": (it) => it.entries.some(({ fault }) => fault) || says(it, "told: invalid") > 0 || says(it, "dies of it") > 0,
    "Two collide": (it) => refusals(it) > 0 || says(it, "gives up: the lock was not granted in time") > 0,
    "Two race": (it) => refusals(it) > 0,
};

describe("the stories", () => {
    test("contain each scenario once", () => {
        expect(STORIES.map(({ id }) => id).sort()).toEqual(SCENARIOS.map(({ id }) => id).sort());
    });

    test.each(STORIES)("have a true title and group: $title", ({ title, group, played }) => {
        expect([TITLES[title]?.(played), GROUPS[group]?.(played)]).toEqual([true, true]);
    });

    test.each(STORIES)("have their set-up before anything goes wrong: $title", ({ setUp, played }) => {
        expect(setUp).toBeLessThan(played.entries.length);
        expect(played.entries.slice(0, setUp).filter(({ fault, refused }) => fault || refused)).toEqual([]);
    });
});
