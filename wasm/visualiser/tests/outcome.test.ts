import { beforeEach, describe, expect, test } from "vitest";

import { variantName } from "../src/model/events";
import { differenceText } from "../src/model/outcome";
import type { Rule } from "../src/model/protocol";
import { scenarioById } from "../src/model/scenarios";
import { saveToRepeat, lastLostSettleRequest } from "../src/model/hints";
import { Session } from "../src/session/session";

let session: Session;
beforeEach(() => {
    session = new Session();
});

/** Plays the session until a message with this text is in flight, and drops that message. */
function dropNext(text: string): void {
    const find = () => session.view.value?.messages.find((message) => message.says === text);
    while (!find() && session.advance());
    session.applyEvent({ drop: find()?.id ?? -1 });
}

function playToEnd(): void {
    while (session.advance());
}

/** Plays scenario 3B, in which the user's save fails, and lets the user ask for the save again. */
function repeatSaveOf3b(): void {
    session.openScenario("3b");
    playToEnd();
    const view = session.view.value;
    const save = view && saveToRepeat(session.events(), view);
    if (save) session.applyEvent(save);
}

function difference(rulesOff: Rule[] = []): string | undefined {
    const scenario = session.scenario.value;
    return scenario && differenceText(scenario, session.timeline.value?.entries(0, session.length.value) ?? [], rulesOff);
}

describe("the verdict of a run without a violation", () => {
    test("says that the caller retried after a lost commit, before the lease was settled", () => {
        repeatSaveOf3b();
        dropNext("commit");
        expect(session.verdict.value).toEqual({ kind: "open", text: "The outcome is open: play on." });
        playToEnd();
        expect(session.verdict.value?.text).toContain(
            "The commit of lease #2 was lost at event 37, before it reached the service, so the lease stayed outstanding. The caller got no answer and retried; the lease was committed at event 40.",
        );
    });

    test("does not hide the lost request, whose answer can be lost instead", () => {
        repeatSaveOf3b();
        dropNext("commit");
        playToEnd();
        const lost = lastLostSettleRequest(session.timeline.value?.entries(0, session.length.value) ?? []);
        expect(lost).toBe(36);
        session.loseAnswerInstead(lost);
        expect(session.events().slice(-2).map(variantName)).toEqual(["deliver", "drop"]);
        expect(lastLostSettleRequest(session.timeline.value?.entries(0, session.length.value) ?? [])).toBeUndefined();
    });

    test("says that reconciliation settled the lease by its row if the worker crashed after a lost commit", () => {
        repeatSaveOf3b();
        dropNext("commit");
        session.applyEvent({ crash: { cell: 1, process: { worker: 0 } } });
        playToEnd();
        const settled = session.timeline.value?.entries(0, session.length.value).findIndex(({ says }) => says.includes("commit of lease 2, and answers: done")) ?? 0;
        expect(session.verdict.value?.text).toContain(`Reconciliation found the lease and had it committed at event ${settled + 1}, because the cell's database has its lease row.`);
    });

    test("says that the service answered from its memory after a lost answer", () => {
        session.openScenario("happy-path");
        dropNext("done");
        playToEnd();
        expect(session.verdict.value?.text).toMatch(/^No invariant is violated\. The service had committed lease #1 when a message about the lease was lost at event 13\. The caller retried at event \d+, and the service answered from its memory\.$/);
    });

    test("names the situation that needs the rule that is off", () => {
        repeatSaveOf3b();
        dropNext("commit");
        session.setRule("settled_lease_memory", true);
        playToEnd();
        const { kind, text } = session.verdict.value ?? {};
        expect(kind).toBe("held");
        expect(text).toMatch(/^No invariant is violated in this run without the rule “settled leases are remembered”\. The commit of lease #2 was lost/);
        expect(text).toMatch(/after a lost answer, not after a lost request\.$/);
    });

    test("is the violation with its position if there is one, at every position of the run", () => {
        session.openScenario("happy-path");
        dropNext("done");
        session.setRule("settled_lease_memory", true);
        playToEnd();
        const verdict = session.verdict.value;
        expect(verdict).toMatchObject({ kind: "violated", position: session.marks.value.violation });
        session.seek(2);
        expect(session.verdict.value).toEqual(verdict);
        expect(session.position.value).toBe(2);
    });

    test("is absent for an unchanged scenario and for random events", () => {
        session.openScenario("3b");
        expect(session.verdict.value).toBeUndefined();
        session.openFree({ seed: 1 });
        session.playMany(50);
        expect(session.verdict.value).toBeUndefined();
    });
});

describe("differenceText", () => {
    test("returns undefined for an unchanged scenario", () => {
        session.openScenario("3b");
        expect(difference()).toBeUndefined();
    });

    test("names the first different event and the applied faults", () => {
        repeatSaveOf3b();
        dropNext("commit");
        playToEnd();
        expect(difference()).toBe(
            "The run continues after the scenario's 25 events: a user of cell 1 asks worker 0 to create alice; at event 37 the network loses a message to the service: commit of lease 2.",
        );
        session.openScenario("happy-path");
        dropNext("commit");
        expect(session.events().map(variantName).at(-1)).toBe("drop");
        expect(difference()).toMatch(/^From event \d+ on the run differs from the scenario: the network loses a message to the service: commit of lease 1\.$/);
    });

    test("names the rule that is off", () => {
        session.openScenario("3b");
        session.setRule("ownership", true);
        expect(difference(["ownership"])).toBe(`Played without the rule “cells change only their own claims”. With the rule: ${scenarioById("3b")?.watch}`);
    });
});
