// Tests of worlds of a queue that a person makes: their settings, menus and runs.
import { Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { laneActions, messageActions } from "../src/model/actions";
import { Autopilot, MAX_EVENTS_TO_REST } from "../src/model/autopilot";
import { variantName } from "../src/model/events";
import { layOutLanes } from "../src/model/lanes";
import { explainLock } from "../src/model/lock_texts";
import { momentAt } from "../src/model/moment";
import type { Action } from "../src/model/menu_entries";
import type { Rule, WorldEvent } from "../src/model/protocol";
import { frontText } from "../src/model/queue_texts";
import { scenarioById } from "../src/model/scenarios";
import { formOf, groupsOf, kindOf, LANES_FIELD, rulesOf, settingsOf } from "../src/model/world_form";
import { Session } from "../src/session/session";

const WORLD = settingsOf({ ...formOf(new Simulation().settings()), kind: "queues" }, []);

/** Returns all menu entries for events at the position of the run. */
function offered(simulation: Simulation): Action[] {
    const { view, possible, locks } = { view: simulation.view(), possible: simulation.possible(), locks: simulation.settings().locks };
    const cells = view.cells.map(({ cell }) => cell);
    const { lanes } = layOutLanes({ cells, workers: 1, reconcilers: 0, hasVerifier: true, hasClients: true, hasFronts: true }, 900);
    const ofLanes = lanes.flatMap((lane) => laneActions(lane, view, possible, locks)).flatMap(({ actions }) => actions);
    return [...ofLanes, ...view.messages.flatMap((message) => messageActions(message, view, possible))];
}

/** Plays the events in a new world by hand, each with the reactions of all participants, up to the first violation. */
function playedByHand(events: WorldEvent[], rulesOff: Rule[] = []): Session {
    const session = new Session();
    session.openFree({ ...WORLD, rules_off: rulesOff }, true);
    for (const event of events) {
        session.applyEvent(event);
        for (let count = 0; session.view.value?.violation === undefined && session.advance(); count += 1) if (count > MAX_EVENTS_TO_REST) throw new Error("the run does not come to rest");
    }
    return session;
}

describe("the form", () => {
    test("describes the world from whose settings it was made", () => {
        const settings = new Simulation({ ...WORLD, cells: 4, seed: 9 }).settings();
        expect([kindOf(settings), settings.locks?.lanes, settings.locks?.count]).toEqual(["queues", 2, 0]);
        expect(settingsOf(formOf(settings), [])).toEqual(settings);
        expect(settingsOf({ ...formOf(settings), kind: "locks" }, []).locks).toEqual({ count: 1, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 });
    });

    test("has the bounds of the simulation", () => {
        const world = (lanes: number) => () => settingsOf({ ...formOf(WORLD), locks: { ...WORLD.locks!, lanes } }, []);
        for (const lanes of [LANES_FIELD.min, LANES_FIELD.max]) expect(() => new Simulation(world(lanes)())).not.toThrow();
        for (const lanes of [LANES_FIELD.min - 1, LANES_FIELD.max + 1]) expect(() => new Simulation(world(lanes)())).toThrow();
    });

    test("keeps the rules of queues and of sessions off, and no others", () => {
        const off: Rule[] = ["ownership", "grace", "one_worker"];
        expect(settingsOf(formOf(WORLD), off).rules_off).toEqual(["grace", "one_worker"]);
        expect(settingsOf({ ...formOf(WORLD), kind: "locks" }, off).rules_off).toEqual(["grace"]);
        expect(rulesOf("queues").map(({ rule }) => rule)).toEqual(["one_worker", "shared_lane", "early_count", "settle_fence", "settle_memory", "request_ids"]);
        expect(groupsOf("queues")).toEqual(["queues", "locks"]);
    });
});

describe("menus of a queue", () => {
    test("give a reason for a choice if and only if its event is impossible", () => {
        const simulation = new Simulation({ ...WORLD, seed: 4 });
        for (let event = 0; event < 200; event += 1) {
            const { position } = simulation;
            for (const action of offered(simulation)) {
                const apply = () => simulation.apply(action.event);
                if (action.reason === undefined) expect(apply, JSON.stringify(action)).not.toThrow();
                else expect(apply, JSON.stringify(action)).toThrow();
                simulation.seek(position);
            }
            simulation.play(1);
        }
    });

    test("offer every event that happens in random worlds", () => {
        const [happened, possible] = [new Set<string>(), new Set<string>()];
        const simulation = new Simulation({ ...WORLD, seed: 5 });
        for (let event = 0; event < 3000; event += 1) {
            for (const action of offered(simulation)) if (action.reason === undefined) possible.add(variantName(action.event));
            if (simulation.play(1) === 0) break;
        }
        for (const { event } of simulation.entries(0, simulation.length)) happened.add(variantName(event));
        expect([...happened]).toEqual(expect.arrayContaining(["submit", "serve", "fail_work", "give_back"]));
        expect([...happened].filter((kind) => !possible.has(kind))).toEqual([]);
    });
});

describe("the autopilot", () => {
    test.each([1, 2, 3, 4])("settles every request of a random world: seed %i", (seed) => {
        const simulation = new Simulation({ ...WORLD, cells: 3, seed });
        simulation.play(400);
        const autopilot = new Autopilot();
        let events = 0;
        for (let event = autopilot.next(simulation); event; event = autopilot.next(simulation)) {
            expect((events += 1)).toBeLessThan(MAX_EVENTS_TO_REST);
            simulation.apply(event);
        }
        const { messages, violation, locks } = simulation.view();
        expect([messages, violation]).toEqual([[], undefined]);
        expect(locks?.requests?.filter(({ status }) => status !== "Complete" && status !== "Error")).toEqual([]);
    });
});

describe("a world by hand", () => {
    test("works on a submit, and ends a poison in error (Q03)", () => {
        const session = playedByHand([
            { submit: { cell: 1, lane: 0, kind: "create" } },
            { submit: { cell: 2, lane: 0, kind: "create" } },
            { submit: { cell: 1, lane: 1, kind: "poison" } },
        ]);
        const requests = session.view.value?.locks?.requests?.map(({ number, status, attempts }) => [number, status, attempts]);
        expect(requests).toEqual([[1, "Complete", 1], [3, "Error", 2]]);
        expect(session.view.value?.cells.map(({ front }) => front && frontText(front))).toEqual([
            "is idle: its request is in its lane",
            "is idle: the sheet has a create already, request 1",
        ]);
        expect(session.verdict.value).toEqual({ kind: "held", text: "No invariant is violated." });
    });

    test("shows the violation without the early count (Q03)", () => {
        const session = playedByHand([{ submit: { cell: 1, lane: 1, kind: "poison" } }], ["early_count"]);
        expect(session.verdict.value?.kind).toBe("violated");
    });
});

/** Returns the explanation of the event at this position, counted from 0. */
function explained(simulation: Simulation, position: number) {
    const moment = momentAt(simulation, position);
    return moment && explainLock(moment);
}

describe("the explanations", () => {
    test.each([
        ["queue", "A create is taken alone"],
        ["queue-updates", "All updates that wait are one batch"],
        ["queue-worker-dies", "The worker is gone"],
        ["queue-worker-sleeps", "another one has the lane"],
        ["queue-poison", "gone before it could settle"],
    ])("of the scenario %s have its point", (id, words) => {
        const simulation = Simulation.load(JSON.stringify(scenarioById(id)?.trace));
        const texts = simulation.entries(0, simulation.length).map(({ position }) => explained(simulation, position)?.text ?? "");
        expect(texts.some((text) => text.includes(words)), texts.join("\n")).toBe(true);
    });
});
