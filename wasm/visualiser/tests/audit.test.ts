import { readFileSync } from "node:fs";

import { describe, expect, test } from "vitest";

import { AuditError, looksLikeAudit, parseAudit } from "../src/model/audit";

// The log of `leasehold serve --log-format json` in which the command line has begun, repeated and
// settled leases.
const LOG = readFileSync(new URL("./audit.jsonl", import.meta.url), "utf8");

describe("a live server's audit log", () => {
    const recording = parseAudit(LOG);

    test("has an entry for each audit line, and the cells of all lines", () => {
        expect(recording.length).toBe(8);
        expect(recording.cells).toEqual([1, 2]);
        const entries = recording.entries(0, 8);
        expect(entries.map(({ sent }) => sent[0]?.says)).toEqual([
            "begin: 1 claim", "commit", "begin: 2 claims", "begin: 2 claims (again)", "roll back", "begin: 2 claims", "commit", "begin: 1 claim",
        ]);
        expect(entries[3]?.says).toContain("retries its begin");
        expect(entries[0]?.at_micros).toBe(0);
        expect(entries[7]?.at_micros).toBeGreaterThan(100_000);
    });

    test("has the lease transition of each line, and none for a retried begin", () => {
        const edges = recording.entries(0, 5).map(({ fired }) => fired.map(({ event }) => event));
        expect(edges).toEqual([["Begin"], ["Commit"], ["Begin"], [], ["Rollback"]]);
    });

    test("has the status of each lease at each position", () => {
        const status = (position: number) => recording.leases(position).map((lease) => lease.status);
        expect(status(0)).toEqual([]);
        expect(status(1)).toEqual(["Outstanding"]);
        expect(status(4)).toEqual(["Committed", "Outstanding"]);
        expect(status(8)).toEqual(["Committed", "RolledBack", "Committed", "Outstanding"]);
        expect(recording.leases(8).map(({ fence }) => fence)).toEqual([1, 2, 3, 4]);
    });

    test("takes the age of a lease from its id if its begin is not logged", () => {
        const [, settled] = LOG.split("\n");
        const [lease] = parseAudit(settled!).leases(1);
        expect(lease).toMatchObject({ status: "Committed", age_micros: 20_000 });
    });

    test("names the organization of a begin", () => {
        const [begun] = LOG.split("\n");
        const named = begun!.replace('"fence"', '"organization":"9223372036854775807","fence"');
        expect(parseAudit(begun!).entries(0, 1)[0]?.says).not.toContain("organization");
        expect(parseAudit(named).entries(0, 1)[0]?.says).toContain(" for organization 9223372036854775807: 1 claim");
    });

    test("counts and skips lines that are not audit lines", () => {
        const others = ['{"timestamp":"2026-01-01T00:00:00Z","level":"WARN","message":"slow","target":"store"}', "thread main panicked", "{}"];
        const mixed = parseAudit([...others, LOG].join("\n"));
        expect([mixed.length, mixed.skippedLines]).toEqual([8, 3]);
    });

    test("is saved as a log that can be read again", () => {
        const again = parseAudit(parseAudit(`starting\n${LOG}`).text());
        expect(again.entries(0, 9)).toEqual(recording.entries(0, 9));
        expect([again.leases(8), again.skippedLines]).toEqual([recording.leases(8), 0]);
    });

    test("without an audit line is refused with a text that names the option for JSON logs", () => {
        expect(() => parseAudit("listening on 127.0.0.1:7171\n{}")).toThrow(AuditError);
        expect(() => parseAudit("")).toThrow("--log-format json");
    });

    test("is distinguished from a trace", () => {
        expect(looksLikeAudit(LOG)).toBe(true);
        expect(looksLikeAudit(`starting\n${LOG}`)).toBe(true);
        expect(looksLikeAudit('{"version":1,"settings":{},"events":[]}')).toBe(false);
    });
});
