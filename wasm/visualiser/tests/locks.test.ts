// Tests of worlds of sessions and locks that a person makes: their settings, menus, links and runs.
import { Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import { laneActions, messageActions } from "../src/model/actions";
import { Autopilot, MAX_EVENTS_TO_REST } from "../src/model/autopilot";
import { variantName } from "../src/model/events";
import { layOutLanes } from "../src/model/lanes";
import { decodeLink, encodeLink } from "../src/model/link";
import { explainLock } from "../src/model/lock_texts";
import { momentAt } from "../src/model/moment";
import type { Action } from "../src/model/menu_entries";
import type { LockSettings, Rule, View, WorldEvent } from "../src/model/protocol";
import { playSilence, silenceObstacle } from "../src/model/silence";
import { CELLS_FIELD, CLAIM_FIELDS, formOf, LOCK_FIELDS, rulesOf, settingsOf, ticksToExpire } from "../src/model/world_form";
import { Session } from "../src/session/session";

const TERMS: LockSettings = { count: 2, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 };
const WORLD = settingsOf({ ...formOf(new Simulation().settings()), kind: "locks", locks: TERMS }, []);

function worldWith(terms: Partial<LockSettings>): Simulation {
    return new Simulation({ locks: { ...TERMS, ...terms } });
}

/** Returns all menu entries for events at the position of the run. */
function offered(simulation: Simulation): Action[] {
    const { view, possible, locks } = { view: simulation.view(), possible: simulation.possible(), locks: simulation.settings().locks };
    const cells = view.cells.map(({ cell }) => cell);
    const { lanes } = layOutLanes({ cells, workers: 1, reconcilers: 0, hasVerifier: true, hasClients: true }, 900);
    const ofLanes = lanes.flatMap((lane) => laneActions(lane, view, possible, locks)).flatMap(({ actions }) => actions);
    return [...ofLanes, ...view.messages.flatMap((message) => messageActions(message, view, possible))];
}

/** Returns the run in which one client looked at its clock before a pause, and another one waits. */
function pausedHolder(rulesOff: Rule[] = []): Session {
    const session = new Session();
    session.openFree({ ...WORLD, rules_off: rulesOff }, true);
    session.applyEvent({ work: { cell: 1, lock: 0 } });
    advanceUntil(session, () => clientOf(session, 1)?.phase === "write_resource");
    session.applyEvent({ pause: { cell: 1 } });
    session.applyEvent({ work: { cell: 2, lock: 0 } });
    advanceUntil(session, () => session.view.value?.locks?.locks[0]?.waiting.length === 1);
    return session;
}

/** Plays the session until the condition holds. Throws if the run ends before. */
function advanceUntil(session: Session, isReached: () => boolean): void {
    while (!isReached()) if (!session.advance()) throw new Error("the run ends too early");
}

function clientOf(session: Session, cell: number) {
    return session.view.value?.cells.find((other) => other.cell === cell)?.client;
}

/** Plays the silence of cell 1's client after `pausedHolder`, and then the run to its end. */
function playedPastExpiry(rulesOff: Rule[] = []): Session {
    const session = pausedHolder(rulesOff);
    session.expire(1);
    session.seek(session.length.value);
    playToRest(session);
    return session;
}

/** Plays the session until it is at rest. Throws if it does not come to rest. */
function playToRest(session: Session): void {
    for (let events = 0; session.advance(); events += 1) if (events > MAX_EVENTS_TO_REST) throw new Error("the run does not come to rest");
}

describe("the form's bounds", () => {
    const fields = [CELLS_FIELD, ...CLAIM_FIELDS].map(({ name, min, max }) => ({ name, min, max, world: (value: number) => () => new Simulation({ [name]: value }).free() }));
    const locks = LOCK_FIELDS.map(({ name, min, max }) => ({ name, min, max, world: (value: number) => () => worldWith({ [name]: value }).free() }));
    test.each([...fields, ...locks])("of $name are those of the simulation", ({ min, max, world }) => {
        for (const value of [min, max]) expect(world(value)).not.toThrow();
        for (const value of [min - 1, max + 1]) expect(world(value)).toThrow();
    });
});

describe("the form", () => {
    test("describes the world from whose settings it was made", () => {
        const settings = new Simulation({ ...WORLD, cells: 4, seed: 9 }).settings();
        expect(settingsOf(formOf(settings), [])).toEqual(settings);
        const claims = new Simulation({ cells: 3, names: 5 }).settings();
        expect(settingsOf(formOf(claims), [])).toEqual(claims);
    });

    test("keeps only the rules off that concern its world", () => {
        const off: Rule[] = ["ownership", "grace"];
        const form = formOf(WORLD);
        expect(settingsOf(form, off).rules_off).toEqual(["grace"]);
        expect(settingsOf({ ...form, kind: "claims" }, off).rules_off).toEqual(["ownership"]);
        expect(rulesOf("locks").map(({ rule }) => rule)).toEqual(["observed_silence", "grace", "whole_duration", "fence_check"]);
    });

    test.each([{}, { duration_seconds: 1, grace_seconds: 1, tick_millis: 300 }, { tick_millis: 10_000 }])("tells the ticks after which a session expires: %o", (terms) => {
        const simulation = worldWith(terms);
        simulation.apply({ work: { cell: 1, lock: 0 } });
        while (simulation.view().locks?.sessions.length === 0) simulation.apply(simulation.nextCalm() ?? "stop_service");
        expect(ticksToExpire({ ...TERMS, ...terms })).toBe(simulation.view().locks?.sessions[0]?.expires_at_ticks);
    });
});

describe("menus of locks", () => {
    /** The number of random events after each of which the menus are compared with the world. */
    const EVENTS = 150;
    /** The largest sum of jumps of the wall clock that the simulation allows. */
    const MAX_AHEAD_SECONDS = 31_536_000;

    test("give a reason for a choice if and only if its event is impossible", () => {
        const simulation = new Simulation({ ...WORLD, seed: 4 });
        for (let event = 0; event < EVENTS; event += 1) {
            expectReasons(simulation);
            simulation.play(1);
        }
        for (const seconds of [-MAX_AHEAD_SECONDS, MAX_AHEAD_SECONDS]) {
            const wrong = worldWith({});
            wrong.apply({ jump_clock: seconds });
            expectReasons(wrong);
        }
    });

    /** Expects that an event can be applied if and only if its entry has no reason. */
    function expectReasons(simulation: Simulation): void {
        const { position } = simulation;
        for (const action of offered(simulation)) {
            const apply = () => simulation.apply(action.event);
            if (action.reason === undefined) expect(apply, JSON.stringify(action)).not.toThrow();
            else expect(apply, JSON.stringify(action)).toThrow();
            simulation.seek(position);
        }
    }

    test("offer every event that happens in random worlds", () => {
        const [happened, possible] = [new Set<string>(), new Set<string>()];
        const simulation = new Simulation({ ...WORLD, seed: 5 });
        for (let event = 0; event < 3000; event += 1) {
            for (const action of offered(simulation)) if (action.reason === undefined) possible.add(variantName(action.event));
            if (simulation.play(1) === 0) break;
        }
        for (const { event } of simulation.entries(0, simulation.length)) happened.add(variantName(event));
        expect([...happened].length).toBeGreaterThan(20);
        expect([...happened].filter((kind) => !possible.has(kind))).toEqual([]);
    });
});

describe("the autopilot", () => {
    test.each([1, 2, 3, 4, 5, 6])("brings a random world of locks to rest: seed %i", (seed) => {
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
        expect(locks?.locks.filter(({ status }) => status !== "Free" && status !== "Absent")).toEqual([]);
    });
});

describe("a world by hand", () => {
    test("plays the autopilot's events after those of a person, and no random ones", () => {
        const session = new Session();
        session.openFree(WORLD, true);
        expect([session.canContinue(), session.advance()]).toEqual([false, false]);
        session.applyEvent({ work: { cell: 2, lock: 1 } });
        playToRest(session);
        expect(clientOf(session, 2)?.told).toBe("done");
        expect(session.view.value?.locks?.locks.map(({ writes }) => writes)).toEqual([0, 2]);
        expect(session.canContinue()).toBe(false);
        expect(session.verdict.value).toEqual({ kind: "held", text: "No invariant is violated." });
    });

    test("of claims is continued by the autopilot, too", () => {
        const session = new Session();
        session.openFree(settingsOf({ ...formOf(WORLD), kind: "claims" }, []), true);
        session.applyEvent({ save: { cell: 1, worker: 0, change: { create: 0 } } });
        playToRest(session);
        expect(session.view.value?.claims.map(({ cell, status }) => [cell, status])).toEqual([[1, "Active"]]);
        expect(session.canContinue()).toBe(false);
    });

    test("lets a session expire while others renew: its locks pass on, and its late write is refused (K05, K06, K18)", () => {
        const session = pausedHolder();
        const before = session.length.value;
        session.expire(1);
        expect([session.position.value, session.isPlaying.value]).toEqual([before, true]);
        session.seek(session.length.value);
        const { sessions, locks } = session.view.value?.locks ?? { sessions: [], locks: [] };
        expect(sessions.map(({ cell, status }) => [cell, status])).toEqual([[1, "Expired"], [2, "Live"]]);
        expect(locks[0]).toMatchObject({ holder: 2, fence: 2, waiting: [] });
        playToRest(session);
        expect([clientOf(session, 1)?.told, clientOf(session, 2)?.told]).toEqual(["fenced", "done"]);
        expect(session.view.value?.locks?.locks[0]).toMatchObject({ newest_fence: 2, writes: 2, refused: 1 });
        expect(session.verdict.value?.kind).toBe("held");
    });

    test("shows the late write as a violation if the resource does not check fences (K18)", () => {
        const session = playedPastExpiry(["fence_check"]);
        expect(session.verdict.value?.kind).toBe("violated");
        expect(session.settings.value?.rules_off).toEqual(["fence_check"]);
    });

    test("plays up to the end of a silence, and stops there", () => {
        const session = pausedHolder();
        session.expire(1);
        advanceUntil(session, () => session.mustStop());
        expect(session.view.value?.locks?.sessions[0]?.status).toBe("Expired");
        expect(clientOf(session, 1)?.is_paused).toBe(true);
        session.pause();
        expect(session.mustStop()).toBe(false);
    });
});

describe("a silence", () => {
    const view = (change: (simulation: Simulation) => void, terms: Partial<LockSettings> = {}): View => {
        const simulation = worldWith(terms);
        simulation.apply({ work: { cell: 1, lock: 0 } });
        while (simulation.view().cells[0]?.client?.phase !== "check") simulation.apply(simulation.nextCalm() ?? "stop_service");
        change(simulation);
        return simulation.view();
    };

    test.each<[string, number, (simulation: Simulation) => void, Partial<LockSettings>, string | undefined]>([
        ["can be played for a live session", 1, () => {}, {}, undefined],
        ["needs a session", 2, () => {}, {}, "no live session"],
        ["needs a service that runs", 1, (simulation) => simulation.apply("stop_service"), {}, "counts no tick"],
        ["needs a service that is not paused", 1, (simulation) => simulation.apply("pause_service"), {}, "counts no tick"],
        ["is not played for thousands of ticks", 1, () => {}, { duration_seconds: 3600, tick_millis: 100 }, "only after 36021 ticks"],
    ])("%s", (_, cell, change, terms, words) => {
        const obstacle = silenceObstacle(cell, view(change, terms));
        if (words === undefined) expect(obstacle).toBeUndefined();
        else expect(obstacle).toContain(words);
    });

    test("lets the messages of other cells arrive, and none of the silent one", () => {
        const simulation = worldWith({});
        simulation.apply({ work: { cell: 1, lock: 0 } });
        while (simulation.view().cells[0]?.client?.phase !== "check") simulation.apply(simulation.nextCalm() ?? "stop_service");
        simulation.apply({ step: { cell: 1, process: "keepalive" } });
        simulation.apply({ work: { cell: 2, lock: 0 } });
        simulation.apply({ step: { cell: 2, process: "client" } });
        playSilence(simulation, 1);
        const { messages, cells, locks } = simulation.view();
        expect(messages.map(({ cell, says }) => [cell, says])).toEqual([[1, "renew session"]]);
        expect([cells[1]?.client?.phase, locks?.sessions.map(({ status }) => status)]).toEqual(["acquire", ["Expired", "Live"]]);
    });

    test("ends a client that is not paused, too, and one whose process has died", () => {
        for (const event of [{ partition: { cell: 1 } }, { crash: { cell: 1, process: "client" } }] as WorldEvent[]) {
            const simulation = worldWith({});
            simulation.apply({ work: { cell: 1, lock: 0 } });
            while (simulation.view().cells[0]?.client?.phase !== "check") simulation.apply(simulation.nextCalm() ?? "stop_service");
            simulation.apply(event);
            playSilence(simulation, 1);
            expect(simulation.view().locks?.sessions[0]?.status).toBe("Expired");
            expect(simulation.view().locks?.locks[0]?.status).toBe("Free");
        }
    });
});

describe("links to worlds of locks", () => {
    test("carry the settings, the events and the way of playing", async () => {
        const sender = playedPastExpiry();
        sender.seek(20);
        const hash = `#${await encodeLink(sender.linkState()!)}`;
        expect(hash).toMatch(/^#free=0&hand=1&kept=0&at=20&/);
        const receiver = new Session();
        receiver.openLink((await decodeLink(hash))!);
        expect(receiver.settings.value?.locks).toEqual(TERMS);
        expect(receiver.events()).toEqual(sender.events());
        expect(receiver.view.value).toEqual(sender.view.value);
        expect(receiver.linkState()).toEqual(sender.linkState());
    });

    test("to a world without events open it without events", async () => {
        const sender = new Session();
        sender.openFree(WORLD, true);
        const receiver = new Session();
        receiver.openLink((await decodeLink(`#${await encodeLink(sender.linkState()!)}`))!);
        expect([receiver.length.value, receiver.canContinue(), receiver.isEdited.value]).toEqual([0, false, false]);
        receiver.applyEvent({ work: { cell: 1, lock: 0 } });
        expect(receiver.canContinue()).toBe(true);
    });

    test("with random events give the same run, which goes on by chance", async () => {
        const sender = new Session();
        sender.openFree({ ...WORLD, seed: 8 });
        sender.playMany(300);
        const hash = `#${await encodeLink(sender.linkState()!)}`;
        expect(hash).toMatch(/^#free=300&at=300&z=/);
        const receiver = new Session();
        receiver.openLink((await decodeLink(hash))!);
        expect(receiver.events()).toEqual(sender.events());
        expect(receiver.canContinue()).toBe(true);
    });

    test("of the time before worlds of locks open the same worlds of claims", async () => {
        const link = await decodeLink(OLD_LINK);
        expect(link?.origin).toMatchObject({ kind: "free", randomEvents: 500 });
        const session = new Session();
        session.openLink(link!);
        expect([session.length.value, session.position.value, session.settings.value?.locks, session.canContinue()]).toEqual([500, 400, undefined, true]);
        expect(session.notice.value).toBeUndefined();
        expect(`#${await encodeLink(session.linkState()!)}`).toBe(OLD_LINK);
    });
});

/** Returns the explanation of each event of the session's run. */
function explanations({ simulation }: Session) {
    const run = simulation.value;
    const events = Array.from({ length: run?.length ?? 0 }, (_, position) => run && momentAt(run, position));
    return events.map((moment) => moment && explainLock(moment));
}

describe("explanations of locks", () => {
    test("offer each rule of locks where it matters", () => {
        const runs = [
            playedPastExpiry(),
            byHand(["stop_service", "start_service", { jump_clock: 3600 }]),
            byHand([{ work: { cell: 1, lock: 0 } }], (session) => {
                advanceUntil(session, () => clientOf(session, 1)?.fence !== undefined);
                session.applyEvent({ step: { cell: 1, process: "keepalive" } });
                session.applyEvent({ drop: session.view.value?.messages[0]?.id ?? -1 });
            }),
        ];
        const rules = new Set(runs.flatMap(explanations).flatMap((explanation) => explanation?.rule ?? []));
        expect([...rules].sort()).toEqual(rulesOf("locks").map(({ rule }) => rule as Rule).sort());
    });

    test("of a jump of the clock names the rule that makes it harmless (K06)", () => {
        expect(explanations(byHand([{ jump_clock: -3600 }]))[0]).toMatchObject({ rule: "observed_silence" });
    });

    test("exist for the faults and their ends", () => {
        const session = byHand([{ wait: { seconds: 1 } }, "pause_service", "resume_service", { partition: { cell: 1 } }, { pause: { cell: 1 } }, { resume: { cell: 1 } }]);
        expect(explanations(session).filter((explanation) => explanation === undefined)).toEqual([]);
        expect(explanations(session)).toHaveLength(6);
    });
});

/** Returns a world by hand after these events. */
function byHand(events: WorldEvent[], more: (session: Session) => void = () => {}): Session {
    const session = new Session();
    session.openFree(WORLD, true);
    events.forEach((event) => session.applyEvent(event));
    more(session);
    return session;
}

/** A link that the page wrote before it had worlds of locks: 500 random events of the seed 7. */
const OLD_LINK =
    "#free=500&at=400&z=bU_LjsIwDPwXn3MoC-qi_ApCkUlcGpFHZRs4oP77Ks1KrMTexprxPF4gpBrLVcC-QIgC2G8DnlISsF8GnpVvxB0z-Vp8TNu9M1Awk4DdG8g1NHSCC02Vyfmac1Q4G_Cp-lujXoAzYXDSTIKAHQxMKOqWJYMd1rMBvicSV6cJ7OlsQGcmmWsKvZtiIoeTEr89xmEw0MPcM-ocy5vbN04Zi6DXWMuHYHdsCiZP5Z_vsZOZ8oX4gz6Oh84vKXp0Ca9_hq0GRGlxOXquLWjYtKjUl-CDWvWuAns4DgYCpfgg_q0duC5gjwbCfQtQ2i6NmVy9a7M04Bll7qoovpZCXsGOBhZkjW0y2EPrKIqsG35ibM9jS4iTtq7r-gM";
