// The sentences about worlds of claims, and the states in which they hold.
import { partsOf, processParts } from "../../src/model/events";
import type { CellView, LeaseView, Process, View, WorkerView } from "../../src/model/protocol";
import { saveResultText } from "../../src/model/texts";
import type { Evidence, Statement } from "./sentences";

export function cellOf(view: View, { entry, message }: Evidence): CellView | undefined {
    const lanes = [entry.lane, message?.from, message?.to];
    const lane = lanes.find((other) => other !== undefined && other !== "service");
    const number = lane === undefined ? undefined : "process" in lane ? lane.process[0] : "user" in lane ? lane.user : lane.database;
    return view.cells.find(({ cell }) => cell === (partsOf(entry.event).cell ?? number));
}

/** Returns the process to which the event or its message belongs. */
function processOf({ entry, message }: Evidence): Process | undefined {
    const { process } = partsOf(entry.event);
    const lane = [message?.from, message?.to, entry.lane].find((other) => typeof other === "object" && "process" in other);
    return process ?? (typeof lane === "object" && "process" in lane ? lane.process[1] : undefined);
}

function numberOf(evidence: Evidence): number {
    const process = processOf(evidence);
    return process === undefined ? -1 : processParts(process).number;
}

function isWorker(evidence: Evidence): boolean {
    const process = processOf(evidence);
    return process !== undefined && processParts(process).kind === "worker";
}

export function workerOf(view: View, evidence: Evidence): WorkerView | undefined {
    return isWorker(evidence) ? cellOf(view, evidence)?.workers[numberOf(evidence)] : undefined;
}

export function transactionOf(view: View, evidence: Evidence) {
    return cellOf(view, evidence)?.transactions.filter(({ worker }) => worker === numberOf(evidence)).at(-1);
}

function statusOf(view: View, lease: string | undefined): LeaseView["status"] | undefined {
    return view.leases.find((other) => other.lease === lease)?.status;
}

const messageLease = ({ message, request }: Evidence) => message?.lease ?? request?.lease;

export function hasLeaseRow(view: View, lease: string | undefined): boolean {
    return view.cells.some(({ lease_rows }) => lease_rows.some((row) => row.lease === lease));
}

function holdsClaims(view: View, lease: string | undefined): boolean {
    return view.claims.some((claim) => claim.lease === lease);
}

export const same = (left: unknown, right: unknown) => JSON.stringify(left) === JSON.stringify(right);

const serviceTables = ({ claims, leases }: View) => [claims, leases.map(({ lease, status }) => [lease, status])];

/** Returns true if the lease of the answered request has this outcome, as far as the service still knows. */
function isSettledOrForgotten({ after, request, rulesOff }: Evidence, outcome: LeaseView["status"]): boolean {
    const status = statusOf(after, request?.lease);
    return status === outcome || (status === undefined && rulesOff.includes("settled_lease_memory"));
}

/** Returns true if the claims of the lease are again as they were before it. */
function isUndone({ before, after }: Evidence, lease: string | undefined): boolean {
    const held = before.claims.filter((claim) => claim.lease === lease);
    return held.every(({ name, status, row, row_before }) => {
        const now = after.claims.find((claim) => claim.name === name);
        return status === "Creating" ? now === undefined : now?.status === "Active" && now.row === (row_before ?? row);
    });
}

const commits = (view: View, evidence: Evidence) => cellOf(view, evidence)?.transactions.filter(({ state }) => state !== "open") ?? [];

/** The sentences of explanations that depend on the state. */
export const EXPLANATIONS: Statement[] = [
    { pattern: /^Its open transaction is rolled back|^The process has lost its memory, and its open/u, holds: (it) => transactionOf(it.before, it)?.state === "open" && transactionOf(it.after, it)?.state !== "open" },
    { pattern: /^The database has received its COMMIT/u, holds: (it) => transactionOf(it.after, it)?.state === "orphaned" },
    { pattern: /^Its lease is still outstanding|^It leaves the lease to rec/u, holds: (it) => statusOf(it.after, workerOf(it.before, it)?.lease) === "Outstanding" },
    { pattern: /^Its lease is settled already/u, holds: (it) => workerOf(it.before, it)?.lease !== undefined && statusOf(it.after, workerOf(it.before, it)?.lease) !== "Outstanding" },
    { pattern: /only the lease row stays/u, holds: (it) => hasLeaseRow(it.after, workerOf(it.before, it)?.lease) },
    { pattern: /nothing is left to reconcile/u, holds: (it) => !hasLeaseRow(it.after, workerOf(it.before, it)?.lease) },
    { pattern: /^It has no lease, so nothing is left/u, holds: (it) => ownOutstanding(it).length === 0 && !isBeginInFlight(it) },
    { pattern: /^Nobody has told it if its begin/u, holds: (it) => workerOf(it.before, it) !== undefined && workerOf(it.before, it)?.lease === undefined },
    { pattern: /^Every open transaction is rolled back/u, holds: (it) => cellOf(it.before, it)?.transactions.some(({ state }) => state === "open") === true && !cellOf(it.after, it)?.transactions.some(({ state }) => state === "open") },
    { pattern: /^Every connection is lost, and every open transaction/u, holds: (it) => cellOf(it.before, it)?.transactions.some(({ state }) => state === "open") === true },
    { pattern: /^A COMMIT that the database has received/u, holds: (it) => commits(it.after, it).length > 0 },
    { pattern: /^The database never carries out|^The database never carried out/u, holds: (it) => commits(it.after, it).length < commits(it.before, it).length },
    { pattern: /^The lease row was part of that transaction/u, holds: (it) => commits(it.before, it).some(({ lease }) => lease !== undefined && !hasLeaseRow(it.after, lease)) },
    { pattern: /^The worker begins again/u, holds: (it) => ["begin", "find_lease"].includes(workerOf(it.after, it)?.phase ?? "") },
    { pattern: /under the same idempotency key/u, holds: ({ rulesOff }) => !rulesOff.includes("replay_keys") },
    { pattern: /^The worker repeats its request/u, holds: (it) => ["commit_lease", "roll_back_lease"].includes(workerOf(it.after, it)?.phase ?? "") },
    { pattern: /^The worker gives its save up/u, holds: (it) => workerOf(it.after, it)?.phase === "abort" },
    { pattern: /^The worker stops here/u, holds: (it) => workerOf(it.after, it)?.phase === undefined },
    { pattern: /leaves its lease to reconciliation/u, holds: (it) => statusOf(it.after, workerOf(it.before, it)?.lease) === "Outstanding" },
    { pattern: /^This COMMIT decides the save: the rows and/u, holds: (it) => (cellOf(it.after, it)?.lease_rows.length ?? 0) > (cellOf(it.before, it)?.lease_rows.length ?? 0) },
    { pattern: /^Its rows change no claim, so there is no lease row/u, holds: (it) => same(cellOf(it.after, it)?.lease_rows, cellOf(it.before, it)?.lease_rows.map((row) => row)) || (cellOf(it.after, it)?.lease_rows.length === cellOf(it.before, it)?.lease_rows.length) },
    { pattern: /the database itself refuses the COMMIT/u, holds: (it) => it.entry.refused === true && cellOf(it.after, it)?.lease_rows.length === cellOf(it.before, it)?.lease_rows.length && same(cellOf(it.after, it)?.rows.map(({ row, name }) => [row, name]), cellOf(it.before, it)?.rows.map(({ row, name }) => [row, name])) },
    { pattern: /^The lease is too old/u, holds: ({ entry }) => entry.says.includes("too old") },
    { pattern: /^The transaction has been open for too long/u, holds: ({ entry }) => entry.says.includes("open for too long") },
    { pattern: /^The cell's own database has the last word/u, holds: (it) => it.entry.refused === true && workerOf(it.after, it)?.phase === "abort" },
    { pattern: /^The verifier read the rows again under the lease, and they still/u, holds: (it) => (cellOf(it.after, it)?.lease_rows.length ?? 0) > (cellOf(it.before, it)?.lease_rows.length ?? 0) },
    { pattern: /will roll it back, before the next begin/u, holds: ({ after }) => (after.take_backs?.length ?? 0) > 0 },
    { pattern: /^The service settles no other lease by itself|^This is the only lease that/u, holds: ({ entry }) => entry.fired.some(({ machine, to }) => machine === "lease" && to === "RolledBack") },
    { pattern: /cannot begin a lease\.$/u, holds: (it) => cellOf(it.after, it)?.is_cut_off === true },
    { pattern: /^The service is back/u, holds: ({ after }) => after.is_up },
    { pattern: /^Plain SQL has changed a row/u, holds: (it) => !same(cellOf(it.after, it)?.rows.map(({ row, name }) => [row, name]), cellOf(it.before, it)?.rows.map(({ row, name }) => [row, name])) },
    { pattern: /^The claims stay as they were/u, holds: ({ before, after }) => same(before.claims, after.claims) },
    // Losses
    { pattern: /settled, but the cell does not know/u, holds: (it) => ["Committed", "RolledBack"].includes(statusOf(it.after, messageLease(it)) ?? "") },
    { pattern: /^The names are held, but the cell does not know/u, holds: (it) => holdsClaims(it.after, messageLease(it)) && statusOf(it.after, messageLease(it)) === "Outstanding" },
    { pattern: /the lease stays outstanding, and its names stay held/u, holds: (it) => statusOf(it.after, messageLease(it)) === "Outstanding" },
    { pattern: /^The lease is settled already, so this request/u, holds: (it) => ["Committed", "RolledBack"].includes(statusOf(it.after, messageLease(it)) ?? "") },
    // Answers
    { pattern: /^Its receiver no longer waits/u, holds: (it) => it.message?.how === "ignored" && same(workerOf(it.before, it)?.phase, workerOf(it.after, it)?.phase) },
    { pattern: /^The verifier read the rows again under the lease: some|^The update is rolled back, and the rem/u, holds: (it) => processOf(it) === "verifier" && isSettledOrForgotten(it, "RolledBack") },
    { pattern: /has left no row in the cell's database|has left no row/u, holds: (it) => !hasLeaseRow(it.after, it.request?.lease) && !it.provenLeases.has(it.request?.lease ?? "") && isSettledOrForgotten(it, "RolledBack") },
    { pattern: /it proved that/u, holds: (it) => it.provenLeases.has(it.request?.lease ?? "") },
    { pattern: /^The cell deletes it next/u, holds: (it) => hasLeaseRow(it.after, it.request?.lease) && it.message?.how === "arrived" },
    // Settles
    { pattern: /^The service is down, so the request changes nothing/u, holds: ({ before, after }) => !after.is_up && same(serviceTables(before), serviceTables(after)) },
    { pattern: /^The service's tables contradict/u, holds: ({ before, after, rulesOff }) => after.is_up && rulesOff.length > 0 && same(serviceTables(before), serviceTables(after)) },
    { pattern: /^The service has forgotten this lease/u, holds: (it) => statusOf(it.after, it.message?.lease) === undefined },
    { pattern: /was settled before|remembers the outcome and repeats|remembers its outcome and repeats/u, holds: (it) => it.entry.sent[0]?.says === "done" && ["Committed", "RolledBack"].includes(statusOf(it.before, it.message?.lease) ?? "") },
    { pattern: /only the answer was lost/u, holds: () => false },
    { pattern: /^This lease was (committed|rolled back) before/u, holds: (it, [, outcome]) => statusOf(it.before, it.message?.lease) === (outcome === "committed" ? "Committed" : "RolledBack") && it.entry.sent[0]?.refused === true },
    { pattern: /so its lease is rolled back/u, holds: (it) => statusOf(it.after, it.message?.lease) === "RolledBack" },
    { pattern: /again as they were before the lease/u, holds: (it) => isUndone(it, it.message?.lease) },
    { pattern: /is final now\.$/u, holds: (it) => statusOf(it.after, it.message?.lease) !== "Outstanding" && !holdsClaims(it.after, it.message?.lease) },
    { pattern: /^The rows are committed already/u, holds: (it) => it.provenLeases.has(it.message?.lease ?? "") },
    { pattern: /^The correction was decided/u, holds: (it) => it.provenLeases.has(it.message?.lease ?? "") },
    { pattern: /lease row (?:is )?in the cell's database, so the local/u, holds: (it) => it.provenLeases.has(it.message?.lease ?? "") },
    { pattern: /no lease row/u, holds: (it) => !it.entry.says.includes("rollback") || !hasLeaseRow(it.after, it.message?.lease) },
    { pattern: /too old for a local COMMIT/u, holds: ({ rulesOff }) => !rulesOff.includes("commit_guard") },
    { pattern: /^So nothing was saved/u, holds: (it) => !it.provenLeases.has(it.message?.lease ?? "") },
    { pattern: /^The service remembers (?:the outcome|the rollback|it)/u, holds: ({ rulesOff }) => !rulesOff.includes("settled_lease_memory") },
    // Begins
    { pattern: /idempotency key of (?:an earlier one|the first)/u, holds: (it) => it.entry.fired.length === 0 && !it.rulesOff.includes("replay_keys") },
    { pattern: /^From now on the lease holds the names/u, holds: (it) => holdsClaims(it.after, it.entry.sent[0]?.lease) && statusOf(it.after, it.entry.sent[0]?.lease) === "Outstanding" },
    { pattern: /^Another (?:lease|save) holds/u, holds: (it) => it.after.claims.some(({ name, lease }) => lease !== undefined && it.message?.says.includes(name)) },
    { pattern: /the service has changed nothing\.$|^The refusal is final/u, holds: ({ before, after }) => same(serviceTables(before)[0], serviceTables(after)[0]) },
    // A rule that is off
    { pattern: /^The rule “.*” is switched off|^Without it /u, holds: ({ rulesOff }) => rulesOff.length > 0 },
];

/** The leases of the event's cell that are outstanding, and of which no other worker knows. */
function ownOutstanding(it: Evidence): LeaseView[] {
    const cell = cellOf(it.after, it);
    const known = cell?.workers.flatMap(({ lease }) => lease ?? []) ?? [];
    return it.after.leases.filter((lease) => lease.cell === cell?.cell && lease.status === "Outstanding" && !known.includes(lease.lease));
}

function isBeginInFlight(it: Evidence): boolean {
    return it.after.messages.some(({ cell, process, says }) => cell === cellOf(it.after, it)?.cell && same(process, processOf(it)) && says.startsWith("begin:"));
}

/** The sentences of explanations that say nothing about the present state. */
export const GENERAL_EXPLANATIONS: string[] = [
    "The process has lost its memory.",
    "Reconciliation keeps nothing in memory: its next run finds the same leases and lease rows.",
    "If it had begun a lease for a correction, reconciliation settles that lease by its lease row.",
    "Every connection is lost.",
    "A missing answer is not a refusal: the call may have taken effect.",
    "This COMMIT decides the save.",
    "Nobody is notified of a lost message.",
    "A caller that gets no answer cannot know if its request reached the service.",
    "Networks and retries deliver messages twice.",
    "The second copy must change nothing.",
    "The begin had no idempotency key and its answer has not left, so nobody can know the lease.",
    "Messages wait until the connection is healed.",
    "Claims and leases are on the service's disk.",
    "It loses only the requests that it has not answered.",
    "A settled lease is remembered for longer than any caller retries.",
    "Only older ones are forgotten.",
    "If it asks again, the service must tell the outcome although the lease is no longer outstanding: that is why settled leases are remembered.",
    "If its caller does not retry, reconciliation settles the lease once it is stale.",
    "Its caller gets no answer.",
    "This caller never learns the outcome.",
    "Its caller learns nothing about earlier requests.",
    "Therefore the lease is committed, too.",
    "That lease may still be committed or rolled back, so the answer is: try again later.",
    "A retry gets the same answer as long as the claims stay as they are.",
    "From here on the update will be committed: by reconciliation if the verifier dies.",
    "So the database itself refuses the COMMIT.",
    "The save cannot go on: the worker rolls it back, and its lease if it has one.",
];

const rowsOf = (view: View, it: Evidence) => cellOf(view, it)?.rows.map(({ row, name }): [number, string] => [row, name]) ?? [];

/** The row texts of events, each with the state in which it holds. */
export const EVENTS: Statement[] = [
    { pattern: /asks worker (\d+) to/u, holds: (it, [, number]) => cellOf(it.after, it)?.workers[Number(number)]?.change !== undefined },
    { pattern: /validates its change/u, holds: (it) => workerOf(it.before, it)?.phase === "validate" },
    { pattern: /begins its local transaction/u, holds: (it) => transactionOf(it.after, it)?.state === "open" },
    { pattern: /writes its rows$/u, holds: (it) => (transactionOf(it.after, it)?.writes.length ?? 0) > 0 },
    { pattern: /writes its rows, which its database refuses/u, holds: (it) => it.entry.refused === true && transactionOf(it.after, it)?.writes.length === 0 },
    { pattern: /two rows would have one name/u, holds: (it) => hasDoubledName(it) },
    { pattern: /rolls its local transaction back/u, holds: (it) => transactionOf(it.before, it)?.state === "open" && transactionOf(it.after, it)?.state !== "open" },
    { pattern: /before it has begun a local transaction/u, holds: (it) => transactionOf(it.before, it)?.state !== "open" },
    { pattern: /needs no lease, because its rows change no claim/u, holds: (it) => it.entry.sent.length === 0 && workerOf(it.after, it)?.lease === undefined },
    { pattern: /worker \d+ writes its lease row/u, holds: (it) => transactionOf(it.after, it)?.lease !== undefined },
    { pattern: /verifier writes its lease row/u, holds: (it) => (cellOf(it.after, it)?.lease_rows.length ?? 0) > (cellOf(it.before, it)?.lease_rows.length ?? 0) || it.entry.refused === true },
    { pattern: /worker \d+ deletes its lease row/u, holds: (it) => !hasLeaseRow(it.after, workerOf(it.before, it)?.lease) },
    { pattern: /verifier deletes its lease row/u, holds: (it) => (cellOf(it.after, it)?.lease_rows.length ?? 0) <= (cellOf(it.before, it)?.lease_rows.length ?? 0) },
    { pattern: /ends its save, which has no lease/u, holds: (it) => workerOf(it.before, it)?.lease === undefined },
    { pattern: /sends COMMIT to its database/u, holds: (it) => transactionOf(it.after, it)?.state === "committing" },
    { pattern: /the transaction of worker \d+ is committed/u, holds: (it) => commits(it.before, it).some(({ writes }) => writes.every(([row, , after]) => rowsOf(it.after, it).some(([id, name]) => id === row && name === after) === (after !== null))) },
    { pattern: /is refused: its lease is too old|is refused: it has been open/u, holds: (it) => it.entry.refused === true && same(rowsOf(it.before, it), rowsOf(it.after, it)) },
    { pattern: /sends (?:commit|rollback|begin)/u, holds: (it) => it.entry.sent.length === 1 },
    { pattern: /asks for its/u, holds: (it) => it.entry.sent.length === 1 },
    { pattern: /^the service receives/u, holds: ({ before }) => before.is_up },
    { pattern: /^the service is down, and receives nothing/u, holds: ({ before, after }) => !before.is_up && same(serviceTables(before), serviceTables(after)) },
    { pattern: /answers: begun/u, holds: (it) => it.entry.sent[0]?.lease !== undefined },
    { pattern: /answers: refused/u, holds: (it) => it.entry.refused === true && it.entry.sent[0]?.refused === true },
    { pattern: /: commit of lease \d+, and answers: done/u, holds: (it) => it.rulesOff.includes("settled_lease_memory") || statusOf(it.after, it.message?.lease) === "Committed" },
    { pattern: /: rollback of lease \d+, and answers: done/u, holds: (it) => it.rulesOff.includes("settled_lease_memory") || statusOf(it.after, it.message?.lease) === "RolledBack" },
    { pattern: /answers: no such lease/u, holds: (it) => it.entry.refused === true && statusOf(it.after, it.message?.lease) === undefined },
    { pattern: /answers: it was committed/u, holds: (it) => it.entry.refused === true && statusOf(it.after, it.message?.lease) === "Committed" },
    { pattern: /answers: it was rolled back/u, holds: (it) => it.entry.refused === true && statusOf(it.after, it.message?.lease) === "RolledBack" },
    { pattern: /answers: \d+ (?:lease|claim)s?$/u, holds: (it) => !it.entry.refused },
    { pattern: /receives the answer/u, holds: (it) => it.message !== undefined && it.request !== undefined && it.message.how !== "lost" },
    { pattern: /but no longer waits for it/u, holds: (it) => it.message?.how === "ignored" },
    { pattern: /crashes and restarts|loses its database connection/u, holds: (it) => !isWorker(it) || workerOf(it.after, it)?.phase === undefined },
    { pattern: /the user is told: (.*)$/u, holds: (it, [, told]) => workerOf(it.after, it)?.phase === undefined && toldTexts(workerOf(it.after, it)).includes(told ?? "") },
    { pattern: /the user is told: saved$/u, holds: (it) => { const lease = workerOf(it.before, it)?.lease; return lease === undefined || it.provenLeases.has(lease); } },
    { pattern: /^the network loses/u, holds: (it) => it.entry.lost.every((id) => !it.after.messages.some((message) => message.id === id)) },
    { pattern: /^the network duplicates/u, holds: (it) => it.after.messages.length === it.before.messages.length + 1 },
    { pattern: /stops waiting for its answer/u, holds: (it) => !isWorker(it) || !/^await_(?!database)/u.test(workerOf(it.after, it)?.phase ?? "") },
    { pattern: /database restarts and loses all its connections/u, holds: (it) => !cellOf(it.after, it)?.transactions.some(({ state }) => state !== "orphaned") },
    { pattern: /abandons the COMMIT/u, holds: (it) => commits(it.after, it).length === commits(it.before, it).length - 1 },
    { pattern: /is cut off from the service/u, holds: (it) => cellOf(it.after, it)?.is_cut_off === true },
    { pattern: /reaches the service again/u, holds: (it) => cellOf(it.after, it)?.is_cut_off === false },
    { pattern: /^the service stops/u, holds: ({ after }) => !after.is_up && after.messages.every(({ is_answer }) => is_answer) },
    { pattern: /^the service starts again/u, holds: ({ after }) => after.is_up },
    { pattern: /plain SQL/u, holds: (it) => !same(rowsOf(it.before, it), rowsOf(it.after, it)) && same(it.before.claims, it.after.claims) },
    { pattern: /^time passes/u, holds: ({ before, after }) => after.now_micros > before.now_micros },
    { pattern: /^the service deletes/u, holds: ({ before, after, entry }) => after.leases.length === before.leases.length - entry.fired.filter(({ machine }) => machine === "lease").length },
    { pattern: /deletes the row of lease \d+/u, holds: (it) => (cellOf(it.after, it)?.lease_rows.length ?? 0) < (cellOf(it.before, it)?.lease_rows.length ?? 0) || it.provenLeases.size > 0 },
    { pattern: /call of .* cancelled before its answer leaves/u, holds: ({ after }) => (after.take_backs?.length ?? 0) > 0 },
    { pattern: /rolls back lease \d+.*which no caller can know/u, holds: ({ entry }) => entry.fired.some(({ machine }) => machine === "lease") },
];

/** Returns true if a name of the change of the event's worker is there already, or twice in the change. */
function hasDoubledName(it: Evidence): boolean {
    const change = workerOf(it.before, it)?.change;
    if (change === undefined || typeof change === "string") return false;
    const names = "create" in change ? [change.create] : "create_two" in change ? change.create_two : "rename" in change ? [change.rename.name] : [];
    const texts = names.map((name) => it.after.names[name]);
    return new Set(texts).size < texts.length || rowsOf(it.after, it).some(([, name]) => texts.includes(name));
}

/** The words of results that the simulation's own sentences write in another way than the page. */
function toldTexts(worker: WorkerView | undefined): string[] {
    const told = worker?.told;
    if (told === undefined) return [];
    if (told === "conflict") return ["refused by the cell's own database"];
    return typeof told === "object" ? [...REFUSALS.filter(([code]) => code === told.refused).map(([, text]) => `refused, ${text}`)] : [saveResultText(told)];
}

const REFUSALS: [string, string][] = [
    ["CLAIM_TAKEN", "the bucket is taken"],
    ["CLAIM_BUSY", "the claim is under another lease"],
    ["CLAIM_NOT_FOUND", "the claim does not exist"],
    ["NOT_OWNER", "another cell owns the claim"],
    ["INVALID_UPDATE", "the request is not valid"],
];

/** The row texts of events that say nothing about the present state. */
export const GENERAL_EVENTS: RegExp =
    /looks up its rows|looks for (?:stale lease rows|the end of a page)|ends its run|reads (?:a page of|some) rows|finishes a page|replica applies a change|takes? the next/u;
