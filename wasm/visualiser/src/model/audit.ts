// Reads the audit trail of a live server as a timeline for the lanes. The trail comes from the
// server's `audit.file`, or from the log that `leasehold serve --log-format json` writes (lines by
// `server/src/audit/event.rs`). It lists the begins and settles of leases for each cell, but no
// events within a cell.
import type { Arrow, Entry, FiredView, Lane, LeaseView, Marks, Timeline } from "./protocol";

/** The error for a log without any audit line. Its message tells the person what to do. */
export class AuditError extends Error {
    override name = "AuditError";
}

/** One audit line of a server's log, parsed from JSON. */
interface AuditLine {
    timestamp: string;
    message: string;
    cell: string;
    lease: string;
    fence?: number;
    claims?: number;
    replayed?: boolean;
    /** The id of the organization that the begin named. */
    organization?: string;
    outcome?: "committed" | "rolled_back";
}

/** The timeline of an audit log, with one entry for each audit line. */
export class Recording implements Timeline {
    /** The numbers of the cells that the log names, in ascending order. */
    readonly cells: number[];
    private readonly allEntries: Entry[];

    constructor(
        private readonly lines: AuditLine[],
        /** The number of lines in the log that are not audit lines. */
        readonly skippedLines: number,
    ) {
        const start = Date.parse(lines[0]?.timestamp ?? "");
        this.cells = [...new Set(lines.map((line) => Number(line.cell)))].sort((left, right) => left - right);
        this.allEntries = lines.map((line, position) => entryOf(line, position, start));
    }

    get length(): number {
        return this.allEntries.length;
    }

    /** The timestamp of the first audit line. */
    get startedAt(): string {
        return this.lines[0]?.timestamp ?? "";
    }

    /** Returns the audit lines as the text of a log, which `parseAudit` can read. */
    text(): string {
        return this.lines.map((line) => `${JSON.stringify(line)}\n`).join("");
    }

    entries(from: number, to: number): Entry[] {
        return this.allEntries.slice(from, to);
    }

    arrows(from: number, to: number): Arrow[] {
        return this.allEntries.slice(from, to).flatMap((entry) => entry.sent);
    }

    marks(): Marks {
        return { faults: [] };
    }

    /**
     * Returns each lease that the log has named before a position, in its state at that position.
     */
    leases(position: number): LeaseView[] {
        const now = Date.parse(this.lines[Math.max(0, position - 1)]?.timestamp ?? "");
        const leases = new Map<string, { view: LeaseView; begunAt: number }>();
        for (const line of this.lines.slice(0, position)) {
            const known = leases.get(line.lease);
            const begunAt = known?.begunAt ?? beginTime(line);
            const fence = line.fence ?? known?.view.fence ?? 0;
            const status = statusAfter(line, known?.view.status);
            const view: LeaseView = { lease: line.lease, number: fence, cell: Number(line.cell), status, fence, age_micros: (now - begunAt) * 1000, names: [] };
            leases.set(line.lease, { view, begunAt });
        }
        return [...leases.values()].map(({ view }) => view);
    }
}

/**
 * Returns the status of a lease after an audit line. A replayed begin does not change the status.
 */
function statusAfter(line: AuditLine, before: LeaseView["status"] | undefined): LeaseView["status"] {
    if (line.message === "lease begun") return before ?? "Outstanding";
    return line.outcome === "committed" ? "Committed" : "RolledBack";
}

function entryOf(line: AuditLine, position: number, start: number): Entry {
    const lane: Lane = { process: [Number(line.cell), { worker: 0 }] };
    const arrow: Arrow = { id: position, from: lane, to: "service", says: messageText(line), sent: position, ended: position, how: "arrived" };
    return {
        position,
        // An entry needs an event of the simulation, but the log has none. The entry has the event
        // `forget`, because the lanes draw it neither as a message nor as a wait.
        event: "forget",
        at_micros: (Date.parse(line.timestamp) - start) * 1000,
        says: sentence(line),
        lane: "service",
        sent: [arrow],
        lost: [],
        fired: transitions(line),
        fault: false,
    };
}

/**
 * Returns the time at which the lease of an audit line was begun, in milliseconds since 1970. The
 * log may start after that. A lease id is a UUID of version 7, whose first 48 bits are the time
 * (RFC 9562, 5.7).
 */
function beginTime({ timestamp, lease }: AuditLine): number {
    const logged = Date.parse(timestamp);
    const minted = parseInt(lease.replace("-", "").slice(0, 12), 16);
    return minted < logged ? minted : logged;
}

function messageText(line: AuditLine): string {
    if (line.message === "lease begun") return `begin: ${claimCount(line)}${line.replayed ? " (again)" : ""}`;
    return line.outcome === "committed" ? "commit" : "roll back";
}

function claimCount(line: AuditLine): string {
    return line.claims === 1 ? "1 claim" : `${line.claims ?? 0} claims`;
}

function sentence(line: AuditLine): string {
    const lease = `lease …${line.lease.slice(-6)}`;
    if (line.message !== "lease begun") {
        return `cell ${line.cell} ${line.outcome === "committed" ? "commits" : "rolls back"} ${lease}`;
    }
    if (line.replayed) return `cell ${line.cell} retries its begin, and gets ${lease} again`;
    const organization = line.organization === undefined ? "" : ` for organization ${line.organization}`;
    return `cell ${line.cell} begins ${lease}${organization}: ${claimCount(line)}, fence ${line.fence ?? 0}`;
}

/**
 * Returns the lease transitions that an audit line stands for. `edge` is an index into the engine's
 * table of leases (`core/src/table.rs`).
 */
function transitions(line: AuditLine): FiredView[] {
    if (line.replayed) return [];
    const of = line.lease;
    if (line.message === "lease begun") {
        return [{ machine: "lease", of, edge: 0, from: "Absent", event: "Begin", to: "Outstanding" }];
    }
    return line.outcome === "committed"
        ? [{ machine: "lease", of, edge: 1, from: "Outstanding", event: "Commit", to: "Committed" }]
        : [{ machine: "lease", of, edge: 2, from: "Outstanding", event: "Rollback", to: "RolledBack" }];
}

/**
 * Reads the audit lines of a log, and counts the other lines. Throws `AuditError` if the log has no
 * audit line.
 */
export function parseAudit(text: string): Recording {
    const lines = text.split("\n").filter((line) => line.trim() !== "");
    const auditLines = lines.map(parseLine).filter((line) => line !== undefined);
    if (auditLines.length === 0) {
        throw new AuditError(
            "the log has no line about a lease: open the server's `audit.file`, or write the log with `leasehold serve --log-format json` and do not filter `audit` out",
        );
    }
    return new Recording(auditLines, lines.length - auditLines.length);
}

function parseLine(text: string): AuditLine | undefined {
    let value: unknown;
    try {
        value = JSON.parse(text);
    } catch {
        return undefined;
    }
    return isAuditLine(value) ? value : undefined;
}

function isAuditLine(value: unknown): value is AuditLine {
    if (typeof value !== "object" || value === null) return false;
    const line = value as Record<string, unknown>;
    const isText = (key: string) => typeof line[key] === "string";
    const isAboutLease = line["message"] === "lease begun" || line["message"] === "lease settled";
    const isDated = isText("timestamp") && !Number.isNaN(Date.parse(String(line["timestamp"])));
    return line["target"] === "audit" && isAboutLease && isDated && isText("lease") && isText("cell") && Number.isInteger(Number(line["cell"]));
}

/** Returns true if the text of a file looks like a JSON log, and not like a trace. */
export function looksLikeAudit(text: string): boolean {
    const first = text.trimStart().split("\n", 1)[0] ?? "";
    return first.includes('"timestamp"') || (!first.startsWith("{") && text.includes('"target":"audit"'));
}

/**
 * Matches a line of the server's default log format, "full" of tracing-subscriber: time, level,
 * target.
 */
const TEXT_LOG_LINE = /^\d{4}-\d\d-\d\dT[\d:.]+Z\s+(?:ERROR|WARN|INFO|DEBUG|TRACE)\s+[\w:]+:/m;

/**
 * Returns true if the text of a file is a server's log in the default text format. The page can
 * read only the JSON format.
 */
export function looksLikeTextLog(text: string): boolean {
    return TEXT_LOG_LINE.test(text);
}
