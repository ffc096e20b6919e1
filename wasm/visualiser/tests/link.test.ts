import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { DAMAGED_LINK, decodeLink, DEFAULT_VIEW, encodeLink, LinkError, type LinkState, LinkWriter } from "../src/model/link";
import type { WorldEvent, Trace } from "../src/model/protocol";
import { divergenceFrom } from "../src/model/origin";

const scenario = scenarios().find(({ id }) => id === "3b");
if (!scenario) throw new Error("there is no scenario 3b");

const STATES: [string, LinkState][] = [
    ["a scenario", { origin: { kind: "scenario", id: "3b" }, rulesOff: [], position: 12, view: DEFAULT_VIEW }],
    [
        "an edited scenario without a rule",
        {
            origin: { kind: "scenario", id: "3b" },
            rulesOff: ["commit_guard", "ownership"],
            divergence: { kept: 4, events: ["stop_service", { wait: { seconds: 60 } }, { step: { cell: 1, process: "verifier" } }] },
            position: 5,
            view: { speed: 10, allLanes: true, mergedSteps: true },
        },
    ],
    [
        "a search without a violation",
        { origin: { kind: "scenario", id: "3b" }, rulesOff: [], position: 12, view: DEFAULT_VIEW, searchResult: { rule: "commit_guard", isOff: false, states: 923, events: 1758 } },
    ],
    [
        "free play",
        { origin: { kind: "free", settings: new Simulation({ seed: 7 }).settings(), randomEvents: 500 }, rulesOff: [], position: 400, view: DEFAULT_VIEW },
    ],
    [
        "a trace",
        {
            origin: { kind: "trace", settings: scenario.trace.settings, title: "seen on Tuesday: é & #" },
            rulesOff: [],
            divergence: { kept: 0, events: scenario.trace.events },
            position: 1,
            view: DEFAULT_VIEW,
        },
    ],
];

describe("a link", () => {
    test.each(STATES)("to %s decodes to the same state", async (_, state) => {
        expect(await decodeLink(`#${await encodeLink(state)}`)).toEqual(state);
    });

    test("to a scenario is readable", async () => {
        expect(await encodeLink(STATES[0]![1])).toBe("scenario=3b&at=12");
    });

    test("to a thousand events is shorter than 8000 characters", async () => {
        const simulation = new Simulation({ seed: 3 });
        simulation.play(1000);
        const { settings, events } = JSON.parse(simulation.trace()) as Trace;
        const origin = { kind: "trace", settings, title: "" } as const;
        const hash = await encodeLink({ origin, rulesOff: [], divergence: { kept: 0, events }, position: 0, view: DEFAULT_VIEW });
        expect(hash.length).toBeLessThan(8000);
        expect(hash).toMatch(/^[\w=&.%+-]*$/);
    });

    test("without a run decodes to undefined", async () => {
        expect(await decodeLink("")).toBeUndefined();
        expect(await decodeLink("#elsewhere")).toBeUndefined();
    });

    test("beside whose run stands an unknown parameter keeps the run, and names the parameter", async () => {
        expect(await decodeLink("#scenario=3b&at=2&seed=7")).toMatchObject({ origin: { id: "3b" }, position: 2, unknown: ["seed"] });
        expect(await decodeLink("#scenario=3b&at=-4")).toMatchObject({ origin: { id: "3b" }, position: -4 });
        expect(await decodeLink("#scenario=3b&at=4.4")).toMatchObject({ origin: { id: "3b" }, position: 4 });
    });

    test.each([
        ["with an unknown parameter alone", "#seed=7", "`seed=7`"],
        ["with an unknown parameter and a position, but no run", "#seed=7&at=99999", "`seed=7`"],
        ["without its payload", "#trace=1&at=3", "cut short"],
        ["with a truncated payload", "#trace=1&at=3&z=AAAA", "damaged"],
        ["without an origin", "#at=3&kept=2", "damaged"],
        ["with two origins", "#scenario=3b&free=10&at=3", "damaged"],
        ["with a payload that is not base64", "#free=10&at=3&z=%25%25", "damaged"],
        ["with a position that is not a number", "#scenario=3b&at=much", "`at=much`"],
        ["of a view without a run", "#steps=merged", "damaged"],
        ["of a step of the tour that is no number", "#tour=abc", "no step `abc`"],
        ["with a negative number", "#scenario=3b&kept=-1", "`kept=-1`"],
        ["with two positions", "#scenario=3b&at=3&at=4", "`at` twice"],
        ["with a search result without an origin", "#searched=commit_guard.on.1.2", "damaged"],
        ["with a search of an unknown rule", "#scenario=3b&searched=gravity.on.1.2", "`gravity`"],
        ["with a truncated search result", "#scenario=3b&searched=commit_guard.on.923", "`searched=`"],
        ["with a search whose rule is neither on nor off", "#scenario=3b&searched=commit_guard.so.1.2", "damaged"],
        ["with an unknown rule", "#scenario=3b&off=gravity", "`gravity`"],
    ])("%s is refused with a message for people", async (_, hash, words) => {
        await expect(decodeLink(hash)).rejects.toThrow(LinkError);
        await expect(decodeLink(hash)).rejects.toThrow(words);
    });

    test.each([
        ["text that is not JSON", '{"settings": {'],
        ["a number", "7"],
        ["events that are not a list", '{"settings": {}, "events": 3}'],
        ["settings that are not an object", '{"settings": 1, "events": []}'],
    ])("whose payload has %s is refused as damaged, without a parser's words", async (_, json) => {
        await expect(decodeLink(`#trace=1&z=${await compressed(json)}`)).rejects.toThrow(DAMAGED_LINK);
    });
});

/** Returns the value of a link's parameter `z` that contains this payload. */
async function compressed(text: string): Promise<string> {
    const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    return Buffer.from(await new Response(stream).arrayBuffer()).toString("base64url");
}

describe("a link that is written synchronously", () => {
    test.each(STATES)("to %s decodes to the same state", async (_, state) => {
        expect(await decodeLink(`#${new LinkWriter().writeNow(state)}`)).toEqual(state);
    });

    test("reuses the payload that was compressed last", async () => {
        const writer = new LinkWriter();
        const [, trace] = STATES[4]!;
        const first = await writer.write(trace);
        expect(first).toBe(await encodeLink(trace));
        expect(writer.writeNow({ ...trace, position: 9 })).toBe(first.replace("at=1&", "at=9&"));
    });

    test("stores a payload of several blocks", async () => {
        const simulation = new Simulation({ seed: 3 });
        simulation.play(4000);
        const { settings, events } = JSON.parse(simulation.trace()) as Trace;
        const state: LinkState = { origin: { kind: "trace", settings, title: "" }, rulesOff: [], divergence: { kept: 0, events }, position: 0, view: DEFAULT_VIEW };
        expect(JSON.stringify(events).length).toBeGreaterThan(2 * 0xffff);
        expect(await decodeLink(`#${new LinkWriter().writeNow(state)}`)).toEqual(state);
    });
});

describe("divergenceFrom", () => {
    const events = scenario.trace.events;
    test("returns the events that differ from the scenario", () => {
        expect(divergenceFrom(scenario, events)).toBeUndefined();
        expect(divergenceFrom(scenario, events.slice(0, 9))).toEqual({ kept: 9, events: [] });
        const others: WorldEvent[] = ["stop_service", "start_service"];
        expect(divergenceFrom(scenario, [...events.slice(0, 9), ...others])).toEqual({ kept: 9, events: others });
        expect(divergenceFrom(scenario, [...events, ...others])).toEqual({ kept: events.length, events: others });
    });
});
