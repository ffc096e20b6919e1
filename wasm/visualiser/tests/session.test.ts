import { Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { variantName } from "../src/model/events";
import { DAMAGED_LINK, decodeLink, DEFAULT_VIEW, type LinkState } from "../src/model/link";
import type { WorldEvent } from "../src/model/protocol";
import { type Snapshot, Session } from "../src/session/session";

/** Returns a session with the happy path in which the worker has crashed during its transaction. */
function crashedSession(): Session {
    const session = new Session();
    session.openScenario("happy-path");
    session.seek(8);
    session.applyEvent({ crash: { cell: 1, process: { worker: 0 } } });
    return session;
}

describe("an edited run", () => {
    test("continues in the same way however often `canContinue` is called", () => {
        const [plain, probed] = [crashedSession(), crashedSession()];
        while (plain.advance());
        do {
            probed.canContinue();
            probed.canContinue();
        } while (probed.advance());
        expect(probed.events()).toEqual(plain.events());
        expect(probed.view.value?.claims).toEqual([]);
        expect(probed.canContinue()).toBe(false);
    });

    test("can lose the answer in place of the request", () => {
        const session = new Session();
        session.openScenario("happy-path");
        while (!session.view.value?.messages.some(({ says }) => says === "commit")) session.advance();
        const [message] = session.view.value.messages;
        session.applyEvent({ drop: message?.id ?? 0 });
        session.loseAnswerInstead();
        expect(session.events().slice(-2).map(variantName)).toEqual(["deliver", "drop"]);
        expect(session.view.value.messages).toEqual([]);
        expect(session.view.value.leases.map(({ status }) => status)).toEqual(["Committed"]);
    });
});

/** Returns a session with the state that this fragment of a link describes. */
async function openHash(hash: string): Promise<Session> {
    const session = new Session();
    const link = await decodeLink(hash);
    if (link) session.openLink(link);
    return session;
}

describe("a link with impossible parts", () => {
    test.each([
        ["more events kept than the scenario has", "#scenario=3b&kept=500&at=9", 9, "keeps 500 events of a scenario that has 25"],
        ["a position beyond the end", "#scenario=3b&at=9999", 25, "goes to event 9999, but its run has 25"],
        ["a position before the start", "#scenario=3b&at=-1", 0, "goes to event -1, but a run begins at event 0"],
        ["an unknown speed", "#scenario=3b&at=3&speed=3", 3, "speed is not one of the page's"],
    ])("%s opens the nearest state, with a notice", async (_, hash, at, words) => {
        const session = await openHash(hash);
        expect([session.position.value, session.length.value]).toEqual([at, 25]);
        expect(session.notice.value).toMatchObject({ isError: true });
        expect(session.notice.value?.text).toContain(words);
    });

    test("that keeps the whole scenario is not an edited run", async () => {
        const kept = async (events: number) => (await openHash(`#scenario=3b&kept=${events}`)).isEdited.value;
        expect([await kept(24), await kept(25), await kept(500)]).toEqual([true, false, false]);
    });

    test("its notice disappears when another run is opened", async () => {
        const session = await openHash("#scenario=3b&at=9999");
        expect(session.notice.value).toBeDefined();
        session.openScenario("4a");
        expect(session.notice.value).toBeUndefined();
    });

    const base = new Simulation().settings();
    const trace = (events: unknown[], settings: object = base) =>
        ({ origin: { kind: "trace", settings, title: "" }, rulesOff: [], divergence: { kept: 0, events }, position: 0, view: DEFAULT_VIEW }) as LinkState;
    test.each([
        ["an unknown scenario", { ...trace([]), origin: { kind: "scenario", id: "9z" } }, "`9z`"],
        ["impossible settings", trace([], { ...base, cells: 300 }), DAMAGED_LINK],
        ["a malformed event", trace([{ drpo: 1 }]), DAMAGED_LINK],
        ["too many random events", { origin: { kind: "free", settings: base, randomEvents: 1e12 }, rulesOff: [], position: 0, view: DEFAULT_VIEW }, "more than 1000000"],
    ] as [string, LinkState, string][])("%s is refused, and the open run stays", async (_, link, words) => {
        const session = await openHash("#scenario=4a&at=7");
        expect(() => session.openLink(link)).toThrow(words);
        expect([session.scenario.value?.id, session.position.value]).toEqual(["4a", 7]);
    });

    test("an impossible event ends the run before it, with a notice", () => {
        const session = new Session();
        session.openLink(trace(["stop_service", "stop_service", "start_service"]));
        expect(session.length.value).toBe(1);
        expect(session.notice.value?.text).toContain("cannot be replayed to its end");
    });
});

describe("a file without a run", () => {
    const good = JSON.stringify({ version: 1, settings: new Simulation().settings(), events: ["stop_service"] });
    test.each([
        ["prose", "sun and sea", "neither a saved run nor a server's log"],
        ["a server's log in text format", "leasehold 0.1.0 listening on 127.0.0.1:7171\n2026-11-22T18:05:47.218379Z  INFO audit: lease begun caller=trusted cell=1 fence=1", "write it with `leasehold serve --log-format json`"],
        ["a truncated run", good.slice(0, 200), "damaged or was cut short"],
        ["another JSON object", '{"photos": 12}', "contains no run"],
        ["a run of a later version", '{"version":99}', "version 99"],
        ["a run with unknown events", good.replace("stop_service", "sing"), "contains no run"],
        ["a run with impossible events", good.replace("stop_service", "start_service"), "`events[0]` of the trace can't be replayed"],
    ])("%s is refused without a parser's words", (_, text, words) => {
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

describe("a run that is replaced", () => {
    const edit: WorldEvent = "stop_service";
    const others: [string, (session: Session) => void][] = [
        ["a scenario", (session) => session.openScenario("4a")],
        ["a seed", (session) => session.openFree({ seed: 7 })],
        ["a file", (session) => session.openFile(JSON.stringify({ version: 1, settings: new Simulation().settings(), events: [] }), "one.json")],
    ];
    test.each(others)("by %s is passed to onReplace, and can be restored", (_, open) => {
        const session = new Session();
        const replaced: Snapshot[] = [];
        session.onReplace = (before) => replaced.push(before);
        session.openScenario("3b");
        expect(replaced).toEqual([]);
        session.seek(9);
        session.applyEvent(edit);
        session.setRule("ownership", true);
        replaced.length = 0;
        const [events, view] = [session.events(), session.view.value];
        open(session);
        expect(replaced).toHaveLength(1);
        expect(session.scenario.value?.id).not.toBe("3b");
        session.restore(replaced[0]!);
        expect(replaced).toHaveLength(1);
        expect(session.events()).toEqual(events);
        expect(session.view.value).toEqual(view);
        expect([session.isEdited.value, session.position.value, session.rulesOff.value]).toEqual([true, 10, ["ownership"]]);
    });

    test("by switching a rule is passed to onReplace with the rule as it was", () => {
        const session = new Session();
        const replaced: Snapshot[] = [];
        session.onReplace = (before) => replaced.push(before);
        session.openScenario("2b");
        session.seek(session.length.value);
        const [events, view] = [session.events(), session.view.value];
        session.setRule("replay_keys", true);
        expect(session.view.value).not.toEqual(view);
        session.setRule("replay_keys", false);
        expect(replaced).toHaveLength(2);
        session.restore(replaced[1]!);
        expect(session.rulesOff.value).toEqual(["replay_keys"]);
        session.restore(replaced[0]!);
        expect([session.events(), session.view.value, session.rulesOff.value, session.isEdited.value]).toEqual([events, view, [], false]);
    });
});

describe("a search without a violation", () => {
    test("is part of the link, and is shown until a link without one is opened", () => {
        const searchResult = { rule: "commit_guard", isOff: false, states: 923, events: 1758 } as const;
        const [sender, receiver] = [new Session(), new Session()];
        sender.openScenario("3b");
        const before = sender.linkState()!;
        sender.search.show(searchResult);
        expect(before.searchResult).toBeUndefined();
        receiver.openLink(sender.linkState()!);
        expect(receiver.search.state.value).toEqual({ kind: "none", result: searchResult, rule: "commit_guard", isFromLink: true });
        receiver.openLink(before);
        expect(receiver.search.state.value.kind).toBe("idle");
    });
});
