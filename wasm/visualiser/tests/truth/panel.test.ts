// Holds the banner with the outcome of a run, and the panel's texts about workers, against the
// state of the world.
import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { Autopilot, MAX_EVENTS_TO_REST } from "../../src/model/autopilot";
import { partsOf } from "../../src/model/events";
import { hasLeaseRow, viewAt } from "../../src/model/moment";
import { verdictFor } from "../../src/model/outcome";
import type { Entry, Phase, View } from "../../src/model/protocol";
import { leaseLabel, phaseText } from "../../src/model/texts";
import { sentencesOf } from "./sentences";

const CLAIMS = scenarios().filter(({ trace }) => trace.settings.locks === undefined);

function playToRest(simulation: Simulation): void {
    const autopilot = new Autopilot();
    for (let events = 0; events < MAX_EVENTS_TO_REST; events += 1) {
        const event = autopilot.next(simulation);
        if (event === undefined) return;
        simulation.apply(event);
    }
    throw new Error("the run does not come to rest");
}

interface Run {
    simulation: Simulation;
    entries: Entry[];
    /** The label of the lease that the banner tells about. */
    label: string;
}

const statusOf = (view: View, label: string) => view.leases.find(({ lease }) => leaseLabel(lease) === label)?.status;
const leaseOf = (view: View, label: string) => view.leases.find(({ lease }) => leaseLabel(lease) === label)?.lease;
const STATUSES: Record<string, string> = { committed: "Committed", "rolled back": "RolledBack" };

function entryAt({ entries }: Run, event: string | undefined): Entry {
    const entry = entries[Number(event) - 1];
    if (entry === undefined) throw new Error(`there is no event ${event ?? ""}`);
    return entry;
}

/** The sentences of banners, each with the runs in which it holds. */
const BANNERS: [RegExp, (run: Run, match: RegExpMatchArray) => boolean][] = [
    [/^No invariant is violated\.$/u, ({ entries }) => entries.every(({ violation }) => violation === undefined)],
    [/was lost at event (\d+), before it reached the service, so the lease stayed outstanding\.$/u, (run, [, event]) => entryAt(run, event).lost.length > 0 && statusOf(viewAt(run.simulation, Number(event)), run.label) === "Outstanding"],
    [/^The service had (.*) lease #\d+ when a message about the lease was lost at event (\d+)\.$/u, (run, [, outcome, event]) => entryAt(run, event).lost.length > 0 && statusOf(viewAt(run.simulation, Number(event)), run.label) === STATUSES[outcome ?? ""]],
    [/^The caller retried at event (\d+), and the service answered from its memory\.$/u, (run, [, event]) => ["done", "it was committed", "it was rolled back"].includes(entryAt(run, event).sent[0]?.says ?? "")],
    [/^The caller retried at event (\d+), when the service was down\.$/u, (run, [, event]) => !viewAt(run.simulation, Number(event)).is_up],
    [/^The caller did not retry\.$/u, ({ entries }) => entries.some(({ lost }) => lost.length > 0)],
    [/^The process that began lease #\d+ did not settle it in time\.$/u, () => true],
    [/^The caller got no answer and retried; the lease was (.*) at event (\d+)\.$/u, (run, [, outcome, event]) => statusOf(viewAt(run.simulation, Number(event) - 1), run.label) === "Outstanding" && statusOf(viewAt(run.simulation, Number(event)), run.label) === STATUSES[outcome ?? ""]],
    [
        /^Reconciliation found the lease and had it (.*) at event (\d+), because the cell's database has (its|no) lease row\.$/u,
        (run, [, outcome, event, row]) => {
            const view = viewAt(run.simulation, Number(event));
            return statusOf(view, run.label) === STATUSES[outcome ?? ""] && hasLeaseRow(view, leaseOf(view, run.label)) === (row === "its");
        },
    ],
    [/^The lease is still outstanding\.$/u, ({ simulation, label }) => statusOf(simulation.view(), label) === "Outstanding"],
];

/** Returns the complaints about the banner of a run at rest. */
function complaintsAboutBanner(simulation: Simulation): string[] {
    const entries = simulation.entries(0, simulation.length);
    const { text } = verdictFor({ entries, view: simulation.view(), rulesOff: [], canContinue: false });
    const run = { simulation, entries, label: /lease (#\d+)/u.exec(text)?.[1] ?? "" };
    return sentencesOf(text).flatMap((sentence) => {
        const match = BANNERS.map(([pattern, holds]) => ({ holds, match: sentence.match(pattern) })).find((one) => one.match !== null);
        if (!match?.match) return [`unchecked: ${sentence}`];
        return match.holds(run, match.match) ? [] : [`false: ${sentence}`];
    });
}

describe("the banner", () => {
    test.each(CLAIMS.map(({ id, trace }) => [id, trace] as const))("tells the truth about %s without any of its messages", (_, trace) => {
        const run = Simulation.load(JSON.stringify(trace));
        const deliveries = run.entries(0, run.length).filter(({ event }) => partsOf(event).kind === "deliver");
        for (const { position, event } of deliveries) {
            const changed = Simulation.load(JSON.stringify(trace));
            changed.seek(position);
            changed.apply({ drop: partsOf(event).message ?? -1 });
            playToRest(changed);
            expect(complaintsAboutBanner(changed), `without the message of event ${position + 1}`).toEqual([]);
            changed.free();
        }
        run.free();
    });
});

/** The phases whose next step has the words of the panel in its own sentence. */
const SPOKEN_PHASES: readonly (Phase | undefined)[] = ["validate", "open", "write", "write_lease", "commit", "delete_row"];

describe("the panel", () => {
    test.each(CLAIMS.map(({ id, trace }) => [id, trace] as const))("announces each step of a worker in %s as it happens", (_, trace) => {
        const run = Simulation.load(JSON.stringify(trace));
        const wrong = run.entries(0, run.length).flatMap(({ position, event, says }) => {
            const { kind, cell, process } = partsOf(event);
            if (kind !== "step" || process === undefined || typeof process === "string" || !("worker" in process)) return [];
            const phase = viewAt(run, position).cells.find((other) => other.cell === cell)?.workers[process.worker]?.phase;
            if (phase === "abort") return /rolls its local transaction back|gives its save up/u.test(says) ? [] : [says];
            const isAnnounced = phase !== undefined && says.includes(phaseText(phase));
            return SPOKEN_PHASES.includes(phase) && !isAnnounced ? [`${says}: ${phase ?? ""}`] : [];
        });
        expect(wrong).toEqual([]);
        run.free();
    });
});
