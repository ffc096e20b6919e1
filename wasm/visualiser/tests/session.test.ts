import { describe, expect, test } from "vitest";

import { kindOf } from "../src/model/happening";
import { Session } from "../src/session/session";

/** The happy path, whose worker dies in its transaction. */
function crashed(): Session {
    const session = new Session();
    session.openScenario("happy-path");
    session.seek(8);
    session.bend({ crash: { cell: 1, process: { worker: 0 } } });
    return session;
}

describe("a run that was bent", () => {
    test("goes on in the same way, however often it is asked whether it can", () => {
        const [left, asked] = [crashed(), crashed()];
        while (left.advance());
        do {
            asked.canGoOn();
            asked.canGoOn();
        } while (asked.advance());
        expect(asked.events()).toEqual(left.events());
        expect(asked.view.value?.claims).toEqual([]);
        expect(asked.canGoOn()).toBe(false);
    });

    test("loses the answer in place of the request", () => {
        const session = new Session();
        session.openScenario("happy-path");
        while (!session.view.value?.messages.some(({ says }) => says === "commit")) session.advance();
        const [message] = session.view.value.messages;
        session.bend({ drop: message?.id ?? 0 });
        session.loseAnswerInstead();
        expect(session.events().slice(-2).map(kindOf)).toEqual(["deliver", "drop"]);
        expect(session.view.value.messages).toEqual([]);
        expect(session.view.value.leases.map(({ status }) => status)).toEqual(["Committed"]);
    });
});
