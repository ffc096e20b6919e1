import { Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { kindOf } from "../src/model/happening";
import { DAMAGED, decodeLink, DEFAULT_VIEW, type LinkState } from "../src/model/link";
import type { Happening } from "../src/model/protocol";
import { type Kept, Session } from "../src/session/session";

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

/** A session that shows what a link says. */
async function opened(hash: string): Promise<Session> {
    const session = new Session();
    const link = await decodeLink(hash);
    if (link) session.openLink(link);
    return session;
}

describe("a link that says what cannot be", () => {
    test.each([
        ["more events kept than there are", "#scenario=3b&kept=500&at=9", 9, "keeps 500 events of a scenario that has 25"],
        ["a place beyond the end", "#scenario=3b&at=9999", 25, "goes to event 9999, but its run has 25"],
        ["a speed that is none", "#scenario=3b&at=3&speed=3", 3, "speed is none of the page's"],
    ])("%s: the nearest is shown, and the person is told", async (_, hash, at, words) => {
        const session = await opened(hash);
        expect([session.position.value, session.length.value]).toEqual([at, 25]);
        expect(session.notice.value).toMatchObject({ isError: true });
        expect(session.notice.value?.text).toContain(words);
    });

    test("what keeps all of a scenario, and more, is not called changed", async () => {
        const kept = async (events: number) => (await opened(`#scenario=3b&kept=${events}`)).isBent.value;
        expect([await kept(24), await kept(25), await kept(500)]).toEqual([true, false, false]);
    });

    test("what the person was told is not left over another run", async () => {
        const session = await opened("#scenario=3b&at=9999");
        expect(session.notice.value).toBeDefined();
        session.openScenario("4a");
        expect(session.notice.value).toBeUndefined();
    });

    const base = new Simulation().settings();
    const trace = (events: unknown[], settings: object = base) =>
        ({ origin: { kind: "trace", settings, title: "" }, rulesOff: [], bends: { kept: 0, events }, position: 0, view: DEFAULT_VIEW }) as LinkState;
    test.each([
        ["a scenario that is unknown", { ...trace([]), origin: { kind: "scenario", id: "9z" } }, "`9z`"],
        ["a world that cannot be", trace([], { ...base, cells: 300 }), DAMAGED],
        ["an event that is none", trace([{ drpo: 1 }]), DAMAGED],
        ["more by chance than anybody waits for", { origin: { kind: "free", settings: base, chance: 1e12 }, rulesOff: [], position: 0, view: DEFAULT_VIEW }, "more than 1000000"],
    ] as [string, LinkState, string][])("%s is refused, and what is open stays", async (_, link, words) => {
        const session = await opened("#scenario=4a&at=7");
        expect(() => session.openLink(link)).toThrow(words);
        expect([session.scenario.value?.id, session.position.value]).toEqual(["4a", 7]);
    });

    test("an event that cannot happen ends the run there, and the person is told", () => {
        const session = new Session();
        session.openLink(trace(["stop_service", "stop_service", "start_service"]));
        expect(session.length.value).toBe(1);
        expect(session.notice.value?.text).toContain("cannot be replayed to its end");
    });
});

describe("a file that is no run", () => {
    const good = JSON.stringify({ version: 1, settings: new Simulation().settings(), events: ["stop_service"] });
    test.each([
        ["prose", "sun and sea", "neither a saved run nor a server's log"],
        ["a server's log for people", "leasehold 0.1.0 listening on 127.0.0.1:7171\n2026-11-22T18:05:47.218379Z  INFO audit: lease begun caller=trusted cell=1 fence=1", "write it with `leasehold serve --log-format json`"],
        ["cut short", good.slice(0, 200), "damaged or was cut short"],
        ["another thing", '{"photos": 12}', "holds no run"],
        ["of a later version", '{"version":99}', "version 99"],
        ["of unknown events", good.replace("stop_service", "sing"), "holds no run"],
        ["of impossible events", good.replace("stop_service", "start_service"), "its event 1 can't happen"],
    ])("%s is refused in words that no parser says", (_, text, words) => {
        const session = new Session();
        session.openFile(text, "holiday.json");
        expect(session.notice.value?.text).toContain("`holiday.json`");
        expect(session.notice.value?.text).toContain(words);
        expect(session.notice.value?.text).not.toMatch(/line \d|column|variant|field|[a-z][A-Z]/);
        expect(session.simulation.value).toBeUndefined();
        session.openFile(good, "good.json");
        expect(session.length.value).toBe(1);
    });
});

describe("a run whose place is taken", () => {
    const bend: Happening = "stop_service";
    const others: [string, (session: Session) => void][] = [
        ["a scenario", (session) => session.openScenario("4a")],
        ["a seed", (session) => session.openFree({ seed: 7 })],
        ["a file", (session) => session.openFile(JSON.stringify({ version: 1, settings: new Simulation().settings(), events: [] }), "one.json")],
    ];
    test.each(others)("by %s is handed over, and can be brought back as it was", (_, open) => {
        const session = new Session();
        const left: Kept[] = [];
        session.replaced = (before) => left.push(before);
        session.openScenario("3b");
        expect(left).toEqual([]);
        session.seek(9);
        session.bend(bend);
        session.setRule("ownership", true);
        left.length = 0;
        const [events, view] = [session.events(), session.view.value];
        open(session);
        expect(left).toHaveLength(1);
        expect(session.scenario.value?.id).not.toBe("3b");
        session.bringBack(left[0]!);
        expect(left).toHaveLength(1);
        expect(session.events()).toEqual(events);
        expect(session.view.value).toEqual(view);
        expect([session.isBent.value, session.position.value, session.rulesOff.value]).toEqual([true, 10, ["ownership"]]);
    });

    test("by the same events without a rule is handed over as it was with it, and so the other way round", () => {
        const session = new Session();
        const left: Kept[] = [];
        session.replaced = (before) => left.push(before);
        session.openScenario("2b");
        session.seek(session.length.value);
        const [events, view] = [session.events(), session.view.value];
        session.setRule("replay_keys", true);
        expect(session.view.value).not.toEqual(view);
        session.setRule("replay_keys", false);
        expect(left).toHaveLength(2);
        session.bringBack(left[1]!);
        expect(session.rulesOff.value).toEqual(["replay_keys"]);
        session.bringBack(left[0]!);
        expect([session.events(), session.view.value, session.rulesOff.value, session.isBent.value]).toEqual([events, view, [], false]);
    });
});

describe("a search that found nothing", () => {
    test("is in the link to what is shown, and shown by whoever opens it, until another link says nothing of one", () => {
        const searched = { rule: "local_fence", isOff: false, states: 923, events: 1758 } as const;
        const [sender, receiver] = [new Session(), new Session()];
        sender.openScenario("3b");
        const before = sender.linkState()!;
        sender.search.show(searched);
        expect(before.searched).toBeUndefined();
        receiver.openLink(sender.linkState()!);
        expect(receiver.search.state.value).toEqual({ kind: "none", searched, rule: "local_fence", isByLink: true });
        receiver.openLink(before);
        expect(receiver.search.state.value.kind).toBe("idle");
    });
});
