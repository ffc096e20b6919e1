import { beforeEach, describe, expect, test } from "vitest";

import { kindOf } from "../src/model/happening";
import { differenceOf } from "../src/model/outcome";
import type { Rule } from "../src/model/protocol";
import { scenarioOf } from "../src/model/scenarios";
import { askedInVain, lostRequest } from "../src/model/tries";
import { Session } from "../src/session/session";

let session: Session;
beforeEach(() => {
    session = new Session();
});

/** Plays until a message that says this is under way, and drops it. */
function dropNext(says: string): void {
    const find = () => session.view.value?.messages.find((one) => one.says === says);
    while (!find() && session.advance());
    session.bend({ drop: find()?.id ?? -1 });
}

function toTheEnd(): void {
    while (session.advance());
}

/** The story of the newcomer: 3B, asked again. */
function askAgain(): void {
    session.openScenario("3b");
    toTheEnd();
    const view = session.view.value;
    const save = view && askedInVain(session.events(), view);
    if (save) session.bend(save);
}

function differs(rulesOff: Rule[] = []): string | undefined {
    const scenario = session.scenario.value;
    return scenario && differenceOf(scenario, session.timeline.value?.entries(0, session.length.value) ?? [], rulesOff);
}

describe("why nothing broke", () => {
    test("after a lost commit: whoever waited asked again, before anybody had settled the lease", () => {
        askAgain();
        dropNext("commit");
        expect(session.verdict.value).toEqual({ kind: "open", text: "How it ends is open: play on." });
        toTheEnd();
        expect(session.verdict.value?.text).toContain(
            "The commit of lease #2 was lost at event 37, before the service knew of it, so the lease stayed outstanding. Whoever had asked got no answer, asked again, and it was committed at event 40.",
        );
    });

    test("and its request can be found again, to lose its answer instead", () => {
        askAgain();
        dropNext("commit");
        toTheEnd();
        const lost = lostRequest(session.timeline.value?.entries(0, session.length.value) ?? []);
        expect(lost).toBe(36);
        session.loseAnswerInstead(lost);
        expect(session.events().slice(-2).map(kindOf)).toEqual(["deliver", "drop"]);
        expect(lostRequest(session.timeline.value?.entries(0, session.length.value) ?? [])).toBeUndefined();
    });

    test("after a lost commit whose worker dies: reconciliation settles it, as the row says", () => {
        askAgain();
        dropNext("commit");
        session.bend({ crash: { cell: 1, process: { worker: 0 } } });
        toTheEnd();
        const settled = session.timeline.value?.entries(0, session.length.value).findIndex(({ says }) => says.includes("commit of lease 2, and answers: done")) ?? 0;
        expect(session.verdict.value?.text).toContain(`Reconciliation found it and had it committed at event ${settled + 1}, since its row is in the cell's database.`);
    });

    test("after a lost answer: the service answered from its memory", () => {
        session.openScenario("happy-path");
        dropNext("done");
        toTheEnd();
        expect(session.verdict.value?.text).toMatch(/^Nothing broke\. The service had committed lease #1 when a message about it was lost at event 13\. Asked again at event \d+, it answered from its memory\.$/);
    });

    test("without the memory, after a lost commit: nobody had to be told of a settled lease", () => {
        askAgain();
        dropNext("commit");
        session.setRule("settled_lease_memory", true);
        toTheEnd();
        const { kind, text } = session.verdict.value ?? {};
        expect(kind).toBe("held");
        expect(text).toMatch(/^Nothing broke this time without the rule “settled leases are remembered”\. The commit of lease #2 was lost/);
        expect(text).toMatch(/after a lost answer, not after a lost request\.$/);
    });

    test("is not said where something did: that is told with its place, wherever one looks", () => {
        session.openScenario("happy-path");
        dropNext("done");
        session.setRule("settled_lease_memory", true);
        toTheEnd();
        const broken = session.verdict.value;
        expect(broken).toMatchObject({ kind: "broken", position: session.marks.value.violation });
        session.seek(2);
        expect(session.verdict.value).toEqual(broken);
        expect(session.position.value).toBe(2);
    });

    test("is not said of a scenario that nobody has changed, nor of chance", () => {
        session.openScenario("3b");
        expect(session.verdict.value).toBeUndefined();
        session.openFree({ seed: 1 });
        session.playMany(50);
        expect(session.verdict.value).toBeUndefined();
    });
});

describe("how a run differs from its scenario", () => {
    test("is not said where it does not", () => {
        session.openScenario("3b");
        expect(differs()).toBeUndefined();
    });

    test("is said from the first other event on, with the trouble that was made", () => {
        askAgain();
        dropNext("commit");
        toTheEnd();
        expect(differs()).toBe(
            "After the scenario's 25 events it goes on: a user of cell 1 asks worker 0 to create alice; at event 37 the network loses a message to the service: commit of lease 2.",
        );
        session.openScenario("happy-path");
        dropNext("commit");
        expect(session.events().map(kindOf).at(-1)).toBe("drop");
        expect(differs()).toMatch(/^From event \d+ on it differs from the scenario: the network loses a message to the service: commit of lease 1\.$/);
    });

    test("is said of the same events without a rule", () => {
        session.openScenario("3b");
        session.setRule("ownership", true);
        expect(differs(["ownership"])).toBe(`Played without the rule “cells touch only what is theirs”. With it: ${scenarioOf("3b")?.watch}`);
    });
});
