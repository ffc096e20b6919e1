import { describe, expect, test } from "vitest";

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
});
