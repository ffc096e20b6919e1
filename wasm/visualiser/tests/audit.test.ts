import { readFileSync } from "node:fs";

import { describe, expect, test } from "vitest";

import { AuditError, looksLikeAudit, parseAudit } from "../src/model/audit";

// What `leasehold serve --log-format json` wrote while its command line began, repeated and settled leases.
const LOG = readFileSync(new URL("./audit.jsonl", import.meta.url), "utf8");

describe("a live server's log", () => {
    const recording = parseAudit(LOG);

    test("is told line by line, with the cells that had a part in it", () => {
        expect(recording.length).toBe(8);
        expect(recording.cells).toEqual([1, 2]);
        const entries = recording.entries(0, 8);
        expect(entries.map(({ sent }) => sent[0]?.says)).toEqual([
            "begin: 1 claim", "commit", "begin: 2 claims", "begin: 2 claims (again)", "roll back", "begin: 2 claims", "commit", "begin: 1 claim",
        ]);
        expect(entries[3]?.says).toContain("asks again");
        expect(entries[0]?.at_micros).toBe(0);
        expect(entries[7]?.at_micros).toBeGreaterThan(100_000);
    });

    test("lights the edges that the service has gone along; a repeated begin goes along none", () => {
        const edges = recording.entries(0, 5).map(({ fired }) => fired.map(({ event }) => event));
        expect(edges).toEqual([["Begin"], ["Commit"], ["Begin"], [], ["Rollback"]]);
    });

    test("gives the leases as they stood", () => {
        const status = (position: number) => recording.leases(position).map((lease) => lease.status);
        expect(status(0)).toEqual([]);
        expect(status(1)).toEqual(["Outstanding"]);
        expect(status(4)).toEqual(["Committed", "Outstanding"]);
        expect(status(8)).toEqual(["Committed", "RolledBack", "Committed", "Outstanding"]);
        expect(recording.leases(8).map(({ fence }) => fence)).toEqual([1, 2, 3, 4]);
    });

    test("knows how old a lease is whose begin is not in it", () => {
        const [, settled] = LOG.split("\n");
        const [lease] = parseAudit(settled!).leases(1);
        expect(lease).toMatchObject({ status: "Committed", age_micros: 20_000 });
    });

    test("may tell of other things between", () => {
        const others = ['{"timestamp":"2026-01-01T00:00:00Z","level":"WARN","message":"slow","target":"store"}', "thread main panicked", "{}"];
        const mixed = parseAudit([...others, LOG].join("\n"));
        expect([mixed.length, mixed.ignored]).toEqual([8, 3]);
    });

    test("is saved as lines that are read again", () => {
        const again = parseAudit(parseAudit(`starting\n${LOG}`).text());
        expect(again.entries(0, 9)).toEqual(recording.entries(0, 9));
        expect([again.leases(8), again.ignored]).toEqual([recording.leases(8), 0]);
    });

    test("that tells of no lease is refused in words", () => {
        expect(() => parseAudit("listening on 127.0.0.1:7171\n{}")).toThrow(AuditError);
        expect(() => parseAudit("")).toThrow("--log-format json");
    });

    test("is told apart from a trace", () => {
        expect(looksLikeAudit(LOG)).toBe(true);
        expect(looksLikeAudit(`starting\n${LOG}`)).toBe(true);
        expect(looksLikeAudit('{"version":1,"settings":{},"events":[]}')).toBe(false);
    });
});
