// The recorded scenarios of the simulation, as the stories that the page offers.
import { scenarios } from "leasehold/simulation";

import type { Scenario } from "./protocol";

/** A scenario as people choose it. */
export interface Story {
    /** The id of the scenario. Links contain it. */
    id: string;
    title: string;
    /** The number of events that set the scene. They are played when a person chooses the story. */
    setUp: number;
}

/** Stories with one kind of outcome. */
export interface StoryGroup {
    title: string;
    stories: Story[];
}

const RECORDED: readonly Scenario[] = scenarios();

/** The stories of all scenarios, in groups. */
export const STORY_GROUPS: readonly StoryGroup[] = [
    {
        title: "It works",
        stories: [
            { id: "happy-path", title: "Alice signs up", setUp: 0 },
            { id: "happy-path-lease-first", title: "Alice and Bob in one save, the lease first", setUp: 0 },
            { id: "lock", title: "Two clients, one lock", setUp: 0 },
            { id: "queue", title: "Two workers, two spreadsheets", setUp: 25 },
            { id: "queue-updates", title: "Three updates, one write", setUp: 11 },
        ],
    },
    {
        title: "It fails",
        stories: [
            { id: "1", title: "An invalid save stays in its cell", setUp: 0 },
            { id: "2b", title: "The answer to Alice's worker is lost", setUp: 6 },
            { id: "2b-twice", title: "The answer is lost twice", setUp: 4 },
            { id: "3a", title: "The database refuses Alice's new name", setUp: 14 },
            { id: "3b", title: "Alice's worker dies before its COMMIT", setUp: 8 },
            { id: "4a", title: "Alice's worker dies after its COMMIT", setUp: 10 },
            { id: "4b", title: "The service is down after Alice's COMMIT", setUp: 10 },
            { id: "5a", title: "Alice's lease row is left behind", setUp: 13 },
            { id: "lock-holder-dies", title: "The holder of a lock dies", setUp: 13 },
            { id: "lock-restart", title: "The service restarts under a lock", setUp: 27 },
            { id: "queue-worker-dies", title: "A worker of the queue dies", setUp: 12 },
            { id: "queue-poison", title: "A request ends its workers", setUp: 12 },
        ],
    },
    {
        title: "Two collide",
        stories: [
            { id: "2a", title: "Somebody else has alice already", setUp: 14 },
            { id: "collision", title: "A rename meets a deletion", setUp: 14 },
            { id: "transfer", title: "Bob and Carol both want Alice's name", setUp: 28 },
            { id: "lock-queue", title: "Three wait for one lock", setUp: 25 },
        ],
    },
    {
        title: "Two race",
        stories: [
            { id: "concurrent-creation", title: "Two users want alice at once", setUp: 0 },
            { id: "staleness-race", title: "Alice's worker sleeps through its lease", setUp: 8 },
            { id: "lock-holder-sleeps", title: "The holder of a lock wakes too late", setUp: 14 },
            { id: "queue-worker-sleeps", title: "A worker of the queue wakes too late", setUp: 13 },
        ],
    },
];

const STORIES = new Map(STORY_GROUPS.flatMap(({ stories }) => stories).map((story) => [story.id, story]));

/** The scenarios under the titles of their stories. */
export const SCENARIOS: readonly Scenario[] = RECORDED.map((scenario) => ({ ...scenario, title: STORIES.get(scenario.id)?.title ?? scenario.title }));

/** The id of the scenario that the page shows if its address contains no link. */
export const FIRST_SCENARIO_ID = "happy-path";

/** Returns the scenario with this id, or `undefined` if there is none. */
export function scenarioById(id: string): Scenario | undefined {
    return SCENARIOS.find((scenario) => scenario.id === id);
}

/** Returns the number of events that set the scene of a scenario. */
export function setUpOf(id: string): number {
    return STORIES.get(id)?.setUp ?? 0;
}
