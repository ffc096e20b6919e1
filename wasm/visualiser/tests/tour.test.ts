// Tests the guided tour as a session plays it.
import { effect } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { decodeLink, encodeLink, LinkError } from "../src/model/link";
import { TOUR } from "../src/model/tour";
import { Session } from "../src/session/session";
import { stepToResume, Tour } from "../src/session/tour";

let stored: Map<string, string>;
beforeEach(() => {
    stored = new Map();
    vi.stubGlobal("localStorage", { getItem: (key: string) => stored.get(key) ?? null, setItem: (key: string, value: string) => stored.set(key, value) });
});
afterEach(() => vi.unstubAllGlobals());

function startedTour(isStill = true): { session: Session; tour: Tour } {
    const session = new Session();
    const tour = new Tour(session, () => isStill);
    tour.start();
    return { session, tour };
}

describe("the tour", () => {
    test("goes through all steps, each to its last event, and ends after the last", () => {
        const { session, tour } = startedTour();
        for (const [index, step] of TOUR.entries()) {
            expect([session.tourStep.value, session.position.value, session.scenario.value?.id]).toEqual([index + 1, step.to, step.scenario]);
            tour.next();
        }
        expect(session.tourStep.value).toBeUndefined();
        expect(session.view.value?.violation).toBeDefined();
    });

    test("plays the events of a step, and stops at its end", () => {
        const { session, tour } = startedTour(false);
        tour.next();
        expect([session.position.value, session.isPlaying.value, session.mustStop()]).toEqual([1, true, false]);
        while (!session.mustStop()) session.advance();
        expect(session.position.value).toBe(TOUR[1]?.to);
    });

    test("never shows the end of a step before its events", () => {
        const { session, tour } = startedTour(false);
        const shown: number[] = [];
        const stop = effect(() => void shown.push(session.position.value));
        tour.next();
        stop();
        expect(shown).toEqual([TOUR[0]?.from, TOUR[1]?.from]);
    });

    test("goes back as far as the first step", () => {
        const { session, tour } = startedTour();
        tour.next();
        tour.back();
        tour.back();
        expect(session.tourStep.value).toBe(1);
    });

    test("pauses when a person changes the run, and says where it goes on", () => {
        const { session, tour } = startedTour();
        tour.next();
        session.applyEvent({ crash: { cell: 1, process: { worker: 0 } } });
        expect(session.tourStep.value).toBeUndefined();
        expect(session.notice.value?.text).toContain("Continue the tour");
        expect(session.linkState()?.tour).toBeUndefined();
        tour.start();
        expect([session.tourStep.value, session.isEdited.value]).toEqual([2, false]);
    });

    test("ends when a person opens another run", () => {
        const { session } = startedTour();
        session.openScenario("3b");
        expect([session.tourStep.value, session.notice.value]).toEqual([undefined, undefined]);
    });

    test("has each step as a link, by which the history restores it", () => {
        const { session, tour } = startedTour();
        tour.next();
        const link = session.linkState();
        session.openScenario("3b");
        if (link) session.openLink(link);
        expect([session.tourStep.value, session.position.value]).toEqual([2, TOUR[1]?.to]);
    });
});

describe("the step of the next visit", () => {
    test("is the first one for a new visitor", () => {
        expect(stepToResume()).toBe(1);
    });

    test("is the step at which the visitor left", () => {
        const { tour } = startedTour();
        tour.next();
        tour.next();
        expect([stepToResume(), tour.pausedAt.value]).toEqual([3, 3]);
    });

    test("is none after the end of the tour", () => {
        const { tour } = startedTour();
        tour.end();
        expect([stepToResume(), tour.pausedAt.value]).toEqual([undefined, undefined]);
    });

    test.each(["", "0", "99", "two", "1.5"])("is the first one if the storage contains `%s`", (value) => {
        stored.set("leasehold-tour", value);
        expect(stepToResume()).toBe(1);
    });
});

describe("the address of a step", () => {
    test.each(TOUR.map((_, index) => index + 1))("%i opens the end of the step", async (number) => {
        const link = await decodeLink(`#tour=${number}`);
        expect(link?.position).toBe(TOUR[number - 1]?.to);
        expect(link && (await encodeLink(link))).toBe(`tour=${number}`);
    });

    test.each(["#tour", "#tour="])("%s opens the first step", async (hash) => {
        expect((await decodeLink(hash))?.tour).toBe(1);
    });

    test.each(["#tour=0", "#tour=99", "#tour=x", "#tour=1.5", "#tour=2&scenario=3b"])("%s is refused", async (hash) => {
        await expect(decodeLink(hash)).rejects.toThrow(LinkError);
    });
});
