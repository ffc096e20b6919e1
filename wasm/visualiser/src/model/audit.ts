// A live server's audit log, `leasehold serve --log-format json`, as something to look at: what the service told, and
// to which cell. Nothing within a cell is known.
import type { Arrow, Entry, FiredView, Lane, LeaseView, Marks, Timeline } from "./protocol";

/** A log that cannot be shown, in words. */
export class AuditError extends Error {
    override name = "AuditError";
}

interface Line {
    timestamp: string;
    message: string;
    cell: string;
    lease: string;
    fence?: number;
    claims?: number;
    replayed?: boolean;
    outcome?: "committed" | "rolled_back";
}

/** What a log tells, in the form that the lanes show. */
export class Recording implements Timeline {
    readonly cells: number[];
    private readonly list: Entry[];
    private readonly tableEdges: FiredView[][];

    constructor(
        private readonly lines: Line[],
        /** Lines that tell of something else. */
        readonly ignored: number,
    ) {
        const start = Date.parse(lines[0]?.timestamp ?? "");
        this.cells = [...new Set(lines.map((line) => Number(line.cell)))].sort((one, other) => one - other);
        this.tableEdges = lines.map((line) => edges(line));
        this.list = lines.map((line, position) => this.entry(line, position, start));
    }

    get length(): number {
        return this.list.length;
    }

    /** The first line's time. */
    get startedAt(): string {
        return this.lines[0]?.timestamp ?? "";
    }

    /** The lines that are shown, as a log that can be read again. */
    text(): string {
        return this.lines.map((line) => `${JSON.stringify(line)}\n`).join("");
    }

    entries(from: number, to: number): Entry[] {
        return this.list.slice(from, to);
    }

    arrows(from: number, to: number): Arrow[] {
        return this.list.slice(from, to).flatMap((entry) => entry.sent);
    }

    marks(): Marks {
        return { faults: [] };
    }

    /** The leases as the log has told of them by a position. */
    leases(position: number): LeaseView[] {
        const leases = new Map<string, LeaseView>();
        const now = Date.parse(this.lines[Math.max(0, position - 1)]?.timestamp ?? "");
        for (const line of this.lines.slice(0, position)) {
            const known = leases.get(line.lease);
            const status = line.message === "lease begun" ? (known?.status ?? "Outstanding") : line.outcome === "committed" ? "Committed" : "RolledBack";
            const began = known ? known.age_micros : begunAt(line);
            const fence = line.fence ?? known?.fence ?? 0;
            leases.set(line.lease, { lease: line.lease, number: fence, cell: Number(line.cell), status, fence, age_micros: began, names: [] });
        }
        return [...leases.values()].map((lease) => ({ ...lease, age_micros: (now - lease.age_micros) * 1000 }));
    }

    private entry(line: Line, position: number, start: number): Entry {
        const lane: Lane = { process: [Number(line.cell), { worker: 0 }] };
        const says = inWords(line);
        const arrow: Arrow = { id: position, from: lane, to: "service", says: shortly(line), sent: position, ended: position, how: "arrived" };
        return {
            position,
            event: "forget",
            at_micros: (Date.parse(line.timestamp) - start) * 1000,
            says,
            lane: "service",
            sent: [arrow],
            lost: [],
            fired: this.tableEdges[position] ?? [],
            fault: false,
        };
    }
}

/** When its lease was begun, in milliseconds: its id says so, a UUID of version 7. The log may have begun later. */
function begunAt({ timestamp, lease }: Line): number {
    const told = Date.parse(timestamp);
    const minted = parseInt(lease.replace("-", "").slice(0, 12), 16);
    return minted < told ? minted : told;
}

function shortly(line: Line): string {
    if (line.message === "lease begun") return `begin: ${claims(line)}${line.replayed ? " (again)" : ""}`;
    return line.outcome === "committed" ? "commit" : "roll back";
}

function claims(line: Line): string {
    return line.claims === 1 ? "1 claim" : `${line.claims ?? 0} claims`;
}

function inWords(line: Line): string {
    const lease = line.lease.slice(-6);
    if (line.message !== "lease begun") {
        return `cell ${line.cell} ${line.outcome === "committed" ? "commits" : "rolls back"} lease …${lease}`;
    }
    if (line.replayed) return `cell ${line.cell} asks again, and gets lease …${lease} again`;
    return `cell ${line.cell} begins lease …${lease}: ${claims(line)}, fence ${line.fence ?? 0}`;
}

function edges(line: Line): FiredView[] {
    if (line.replayed) return [];
    const of = line.lease;
    if (line.message === "lease begun") {
        return [{ machine: "lease", of, edge: 0, from: "Absent", event: "Begin", to: "Outstanding" }];
    }
    return line.outcome === "committed"
        ? [{ machine: "lease", of, edge: 1, from: "Outstanding", event: "Commit", to: "Committed" }]
        : [{ machine: "lease", of, edge: 2, from: "Outstanding", event: "Rollback", to: "RolledBack" }];
}

/** Reads a log. Lines that are no JSON, or tell of something else, are counted and left out. */
export function parseAudit(text: string): Recording {
    const lines = text.split("\n").filter((line) => line.trim() !== "");
    const told = lines.map(parseLine).filter((line) => line !== undefined);
    if (told.length === 0) {
        throw new AuditError(
            "no line tells of a lease: write the log with `leasehold serve --log-format json`, and do not filter `audit` out",
        );
    }
    return new Recording(told, lines.length - told.length);
}

function parseLine(text: string): Line | undefined {
    let value: unknown;
    try {
        value = JSON.parse(text);
    } catch {
        return undefined;
    }
    return isLine(value) ? value : undefined;
}

function isLine(value: unknown): value is Line {
    if (typeof value !== "object" || value === null) return false;
    const line = value as Record<string, unknown>;
    const isText = (key: string) => typeof line[key] === "string";
    const isTold = line["message"] === "lease begun" || line["message"] === "lease settled";
    const isDated = isText("timestamp") && !Number.isNaN(Date.parse(String(line["timestamp"])));
    return line["target"] === "audit" && isTold && isDated && isText("lease") && isText("cell") && Number.isInteger(Number(line["cell"]));
}

/** Whether a text looks like lines of a log rather than a trace. */
export function looksLikeAudit(text: string): boolean {
    const first = text.trimStart().split("\n", 1)[0] ?? "";
    return first.includes('"timestamp"') || (!first.startsWith("{") && text.includes('"target":"audit"'));
}

/** A line of the log that a server writes unless it is told otherwise: a time, a level, and what wrote it. */
const PROSE_LINE = /^\d{4}-\d\d-\d\dT[\d:.]+Z\s+(?:ERROR|WARN|INFO|DEBUG|TRACE)\s+[\w:]+:/m;

/** Whether a text is a server's log for people, which says too little in too many ways to be read. */
export function looksLikeProse(text: string): boolean {
    return PROSE_LINE.test(text);
}
