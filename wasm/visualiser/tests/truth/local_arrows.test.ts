// Holds each arrow within a cell against the states of the world around its event.
import { scenarios, Simulation } from "leasehold/simulation";
import { expect, test } from "vitest";

import { isSameProcess, partsOf, processParts } from "../../src/model/events";
import { localArrows, type LocalArrow } from "../../src/model/local_arrows";
import { type Moment, momentAt, transactionOf, workerIn } from "../../src/model/moment";
import type { CellView, Process, Told, View } from "../../src/model/protocol";
import { changeText, saveResultText } from "../../src/model/texts";

const CLAIMS = scenarios().filter(({ trace }) => trace.settings.locks === undefined);
const LONG = 60_000;

/** The statements of an arrow, each with the states in which it holds. */
const HOLDS: Record<string, (moment: Moment, cell: number, process: Process) => boolean> = {
    BEGIN: ({ before, after }, cell, process) => transactionOf(before, cell, process) === "none" && transactionOf(after, cell, process) === "open",
    rows: ({ entry, before, after }, cell, process) => entry.refused === true || writes(after, cell, process) > writes(before, cell, process),
    lease: ({ before, after }, cell, process) => leaseOf(before, cell, process) === undefined && leaseOf(after, cell, process) !== undefined,
    COMMIT: ({ before, after }, cell, process) => transactionOf(before, cell, process) === "open" && transactionOf(after, cell, process) === "committing",
    ROLLBACK: ({ after }, cell, process) => transactionOf(after, cell, process) === "none",
    delete: ({ before, after }, cell) => (cellOf(after, cell)?.lease_rows.length ?? 0) < (cellOf(before, cell)?.lease_rows.length ?? 0),
    read: ({ before, after }, cell) => JSON.stringify(cellOf(before, cell)?.rows.map(({ name }) => name)) === JSON.stringify(cellOf(after, cell)?.rows.map(({ name }) => name)),
};

function cellOf(view: View, number: number): CellView | undefined {
    return view.cells.find(({ cell }) => cell === number);
}

function transaction(view: View, cell: number, process: Process) {
    return cellOf(view, cell)?.transactions.filter(({ worker }) => worker === processParts(process).number).at(-1);
}

const writes = (view: View, cell: number, process: Process) => transaction(view, cell, process)?.writes.length ?? 0;
const leaseOf = (view: View, cell: number, process: Process) => transaction(view, cell, process)?.lease;

/** Returns true if the quoted words tell a result. The simulation has its own words for refusals. */
function isAnswer(says: string, result: Told): boolean {
    if (typeof result === "object") return says === "“refused”";
    return says === (result === "conflict" ? "“refused by the cell's own database”" : `“${saveResultText(result).split(",")[0] ?? ""}”`);
}

/** Returns true if the words between a user and a worker are those of the state. */
function isSpoken(moment: Moment, { from, to, says }: LocalArrow): boolean {
    const [lane, isQuestion] = typeof from === "object" && "user" in from ? [to, true] : [from, false];
    if (typeof lane !== "object" || !("process" in lane)) return false;
    const worker = workerIn(moment.after, ...lane.process);
    if (!isQuestion) return worker?.told !== undefined && isAnswer(says, worker.told);
    return worker?.change !== undefined && says.startsWith(`“${changeText(worker.change, moment.after.names).split(" ")[0] ?? "?"}`);
}

function isTrue(moment: Moment, arrow: LocalArrow): boolean {
    if (arrow.isSpeech) return isSpoken(moment, arrow);
    if (typeof arrow.from !== "object" || !("process" in arrow.from)) return false;
    return HOLDS[arrow.says]?.(moment, ...arrow.from.process) ?? false;
}

/** Returns the arrows of a run that do not hold, and the number of all. */
function check(run: Simulation): { wrong: string[]; count: number } {
    const wrong: string[] = [];
    let count = 0;
    for (let index = 0; index < run.length; index += 1) {
        const moment = momentAt(run, index);
        const arrows = moment ? localArrows(moment.entry) : [];
        count += arrows.length;
        if (moment) wrong.push(...arrows.filter((arrow) => !isTrue(moment, arrow)).map(({ says }) => `event ${index + 1}, ${moment.entry.says}: ${says}`));
        if (moment && told(moment).some((cell) => !arrows.some(({ to }) => typeof to === "object" && "user" in to && to.user === cell))) wrong.push(`event ${index + 1}, ${moment.entry.says}: no answer`);
    }
    return { wrong, count };
}

/**
 * Returns the cells in which a worker answers its user in the event. A restart of a database ends
 * several saves, and its sentence tells about the database alone.
 */
function told({ entry, before, after }: Moment): number[] {
    if (partsOf(entry.event).kind === "restart_database") return [];
    return after.cells.flatMap(({ cell, workers }) => workers.flatMap(({ told, phase }, number) => (told !== undefined && phase === undefined && workerIn(before, cell, { worker: number })?.phase !== undefined ? [cell] : [])));
}

test.each(CLAIMS.map(({ id, trace }) => [id, trace] as const))("each arrow within a cell holds in scenario %s", (_, trace) => {
    const { wrong, count } = check(Simulation.load(JSON.stringify(trace)));
    expect(wrong).toEqual([]);
    expect(count).toBeGreaterThan(1);
});

test.each([1, 2])(
    "each arrow within a cell holds in random run %i",
    (seed) => {
        const run = new Simulation({ seed, cells: 2, workers: 2, modes: ["before_commit", "lease_first"] });
        run.play(1500);
        expect(check(run).wrong).toEqual([]);
    },
    LONG,
);

test("the arrows of an event belong to its process", () => {
    const run = Simulation.load(JSON.stringify(CLAIMS[0]?.trace));
    for (const entry of run.entries(0, run.length)) {
        for (const { from, to } of localArrows(entry)) {
            const lanes = [from, to].filter((lane): lane is { process: [number, Process] } => typeof lane === "object" && "process" in lane);
            expect(lanes.map(({ process }) => process)).toEqual([[1, expect.anything()]]);
            expect(lanes.every(({ process }) => isSameProcess(process[1], { worker: 0 }))).toBe(true);
        }
    }
});
