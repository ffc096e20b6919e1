import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { DAMAGED, decodeLink, DEFAULT_VIEW, encodeLink, LinkError, type LinkState, LinkWriter } from "../src/model/link";
import type { Happening, Trace } from "../src/model/protocol";
import { bendsOf } from "../src/model/run";

const scenario = scenarios().find(({ id }) => id === "3b");
if (!scenario) throw new Error("there is no scenario 3b");

const STATES: [string, LinkState][] = [
    ["a scenario", { origin: { kind: "scenario", id: "3b" }, rulesOff: [], position: 12, view: DEFAULT_VIEW }],
    [
        "a bent scenario without a rule",
        {
            origin: { kind: "scenario", id: "3b" },
            rulesOff: ["local_fence", "ownership"],
            bends: { kept: 4, events: ["stop_service", { wait: { seconds: 60 } }, { step: { cell: 1, process: "verifier" } }] },
            position: 5,
            view: { speed: 10, allLanes: true },
        },
    ],
    [
        "a search that found nothing",
        { origin: { kind: "scenario", id: "3b" }, rulesOff: [], position: 12, view: DEFAULT_VIEW, searched: { rule: "local_fence", isOff: false, states: 923, events: 1758 } },
    ],
    [
        "free play",
        { origin: { kind: "free", settings: new Simulation({ seed: 7 }).settings(), chance: 500 }, rulesOff: [], position: 400, view: DEFAULT_VIEW },
    ],
    [
        "a trace",
        {
            origin: { kind: "trace", settings: scenario.trace.settings, title: "what we saw on Tuesday: é & #" },
            rulesOff: [],
            bends: { kept: 0, events: scenario.trace.events },
            position: 1,
            view: DEFAULT_VIEW,
        },
    ],
];

describe("a link", () => {
    test.each(STATES)("to %s gives the same state", async (_, state) => {
        expect(await decodeLink(`#${await encodeLink(state)}`)).toEqual(state);
    });

    test("to a scenario can be read by people", async () => {
        expect(await encodeLink(STATES[0]![1])).toBe("scenario=3b&at=12");
    });

    test("to a thousand events is short enough to be sent", async () => {
        const simulation = new Simulation({ seed: 3 });
        simulation.play(1000);
        const { settings, events } = JSON.parse(simulation.trace()) as Trace;
        const origin = { kind: "trace", settings, title: "" } as const;
        const hash = await encodeLink({ origin, rulesOff: [], bends: { kept: 0, events }, position: 0, view: DEFAULT_VIEW });
        expect(hash.length).toBeLessThan(8000);
        expect(hash).toMatch(/^[\w=&.%+-]*$/);
    });

    test("that says nothing of a run is none", async () => {
        expect(await decodeLink("")).toBeUndefined();
        expect(await decodeLink("#elsewhere")).toBeUndefined();
    });

    test.each([
        ["cut short", "#trace=1&at=3", "cut short"],
        ["cut within its run", "#trace=1&at=3&z=AAAA", "damaged"],
        ["cut before it says of what", "#at=3&kept=2", "damaged"],
        ["of two runs", "#scenario=3b&free=10&at=3", "damaged"],
        ["not base64", "#free=10&at=3&z=%25%25", "damaged"],
        ["with no number", "#scenario=3b&at=much", "`at=much`"],
        ["with a negative one", "#scenario=3b&kept=-1", "`kept=-1`"],
        ["with a place twice", "#scenario=3b&at=3&at=4", "`at` twice"],
        ["of a search without saying of which run", "#searched=local_fence.on.1.2", "damaged"],
        ["of a search of an unknown rule", "#scenario=3b&searched=gravity.on.1.2", "`gravity`"],
        ["of a search that was cut short", "#scenario=3b&searched=local_fence.on.923", "`searched=`"],
        ["of a search neither with nor without", "#scenario=3b&searched=local_fence.so.1.2", "damaged"],
        ["with an unknown rule", "#scenario=3b&off=gravity", "`gravity`"],
    ])("that is %s is refused in words", async (_, hash, words) => {
        await expect(decodeLink(hash)).rejects.toThrow(LinkError);
        await expect(decodeLink(hash)).rejects.toThrow(words);
    });

    test.each([
        ["no JSON", '{"settings": {'],
        ["no object", "7"],
        ["no list of events", '{"settings": {}, "events": 3}'],
        ["no settings", '{"settings": 1, "events": []}'],
    ])("that packs %s is refused as damaged, without a parser's words", async (_, json) => {
        await expect(decodeLink(`#trace=1&z=${await packed(json)}`)).rejects.toThrow(DAMAGED);
    });
});

/** What `z` says of a text. */
async function packed(text: string): Promise<string> {
    const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    return Buffer.from(await new Response(stream).arrayBuffer()).toString("base64url");
}

describe("a link that is written in a hurry", () => {
    test.each(STATES)("to %s says the same", async (_, state) => {
        expect(await decodeLink(`#${new LinkWriter().writeNow(state)}`)).toEqual(state);
    });

    test("is as short as any once its run was packed", async () => {
        const writer = new LinkWriter();
        const [, trace] = STATES[4]!;
        const first = await writer.write(trace);
        expect(first).toBe(await encodeLink(trace));
        expect(writer.writeNow({ ...trace, position: 9 })).toBe(first.replace("at=1&", "at=9&"));
    });

    test("says a run of more than one block", async () => {
        const simulation = new Simulation({ seed: 3 });
        simulation.play(4000);
        const { settings, events } = JSON.parse(simulation.trace()) as Trace;
        const state: LinkState = { origin: { kind: "trace", settings, title: "" }, rulesOff: [], bends: { kept: 0, events }, position: 0, view: DEFAULT_VIEW };
        expect(JSON.stringify(events).length).toBeGreaterThan(2 * 0xffff);
        expect(await decodeLink(`#${new LinkWriter().writeNow(state)}`)).toEqual(state);
    });
});

describe("bends", () => {
    const events = scenario.trace.events;
    test("are what differs from the scenario", () => {
        expect(bendsOf(scenario, events)).toBeUndefined();
        expect(bendsOf(scenario, events.slice(0, 9))).toEqual({ kept: 9, events: [] });
        const others: Happening[] = ["stop_service", "start_service"];
        expect(bendsOf(scenario, [...events.slice(0, 9), ...others])).toEqual({ kept: 9, events: others });
        expect(bendsOf(scenario, [...events, ...others])).toEqual({ kept: events.length, events: others });
    });
});
