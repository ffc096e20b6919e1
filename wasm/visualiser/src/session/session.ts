// What is watched: a run, the position in it, and all that a person can do with it. The simulation is the only state;
// the signals say when something of it has changed.
import { batch, computed, signal } from "@preact/signals";
import { rules, Simulation } from "leasehold/simulation";

import { looksLikeAudit, parseAudit, Recording } from "../model/audit";
import { Autopilot } from "../model/autopilot";
import { about } from "../model/happening";
import { DEFAULT_VIEW, type LinkState } from "../model/link";
import type { Happening, MessageId, Rule, Scenario, Settings, Timeline, View } from "../model/protocol";
import { verdictOf, type Verdict } from "../model/outcome";
import { bendsOf, type Origin } from "../model/run";
import { FIRST, scenarioOf } from "../model/scenarios";
import { openedBy, openedFile, replay, type Replayed } from "./opening";
import { Search } from "./search";

/** Speeds to choose from, in events a second. */
export const SPEEDS = [0.5, 1, 2, 5, 10, 50, 200, 1000];

export const RULES = rules();

/** A longer run is not looked through for what became of it. */
const LOOKED_THROUGH = 1500;

/** What a person is told, in passing. */
export interface Notice {
    text: string;
    isError: boolean;
}

/** What is open, to be brought back after something else was opened: a run by its link, or a recording. */
export type Kept = { link: LinkState } | { recording: Recording; isOfServer: boolean; position: number };

/** The one run that the page shows. */
export class Session {
    readonly origin = signal<Origin>({ kind: "scenario", id: FIRST });
    /** The run; none where a recording is shown. */
    readonly simulation = signal<Simulation | undefined>(undefined);
    readonly recording = signal<Recording | undefined>(undefined);
    /** Whether the recording is of the server that offers the page. */
    readonly isOfServer = signal(false);
    readonly position = signal(0);
    /** Grows whenever other events have happened than before. */
    readonly revision = signal(0);
    readonly rulesOff = signal<Rule[]>([]);
    readonly isPlaying = signal(false);
    readonly speed = signal(DEFAULT_VIEW.speed);
    readonly allLanes = signal(DEFAULT_VIEW.allLanes);
    readonly notice = signal<Notice | undefined>(undefined);
    /** Whether somebody has let something happen that was not to happen. */
    readonly isBent = signal(false);
    /** Whether the run was opened without anything that its violation does not need. */
    readonly isShortest = signal(false);
    /** Whether events of the run may turn out not to be needed. */
    readonly canShorten = computed(() => !this.isShortest.value || this.isBent.value);

    readonly timeline = computed<Timeline | undefined>(() => this.recording.value ?? this.simulation.value);
    readonly length = computed(() => {
        this.revision.value;
        return this.timeline.value?.length ?? 0;
    });
    readonly view = computed<View | undefined>(() => {
        this.revision.value;
        this.position.value;
        return this.simulation.value?.view();
    });
    readonly settings = computed<Settings | undefined>(() => this.simulation.value?.settings());
    readonly scenario = computed<Scenario | undefined>(() => {
        const origin = this.origin.value;
        return origin.kind === "scenario" ? scenarioOf(origin.id) : undefined;
    });
    readonly marks = computed(() => {
        this.revision.value;
        return this.timeline.value?.marks() ?? { faults: [] };
    });
    /** How the run ends; none where nobody has changed anything, or it is too long to be looked through. */
    readonly verdict = computed<Verdict | undefined>(() => {
        this.revision.value;
        const simulation = this.simulation.value;
        const isChanged = this.isBent.value || this.rulesOff.value.length > 0 || this.origin.value.kind === "trace";
        return simulation && isChanged ? this.judge(simulation) : undefined;
    });
    readonly atEnd = computed(() => this.position.value >= this.length.value);

    /** Called with what was open before, when another run has been opened in its place. */
    replaced: ((before: Kept) => void) | undefined;

    /** Called when a person has let something happen that was not to happen. */
    meddled: (() => void) | undefined;

    /** With the search whose outcome is part of what is shown. */
    constructor(readonly search = new Search()) {}

    /** How many events chance has played before anybody meddled. */
    private chance = 0;
    private autopilot = new Autopilot();
    /** The request for which playing stops, so that something can be done to it. */
    private awaited: string | undefined;

    /** What broke, or, where chance does not go on playing, why nothing did. */
    private judge(simulation: Simulation): Verdict | undefined {
        const { violation } = this.marks.value;
        const isFree = this.origin.value.kind === "free";
        const isLong = simulation.length > LOOKED_THROUGH;
        if ((isFree || isLong) && violation === undefined) return undefined;
        const entries = isLong && violation !== undefined ? simulation.entries(violation, violation + 1) : simulation.entries(0, simulation.length);
        const position = simulation.position;
        simulation.seek(simulation.length);
        const ended = { entries, view: simulation.view(), rulesOff: this.rulesOff.value, isOpen: this.canGoOn() };
        simulation.seek(position);
        return verdictOf(ended);
    }

    /** Opens a scenario at its start. */
    openScenario(id: string): void {
        const scenario = scenarioOf(id);
        if (scenario === undefined) return this.tell(`there is no scenario \`${id}\`: choose one of the list`, true);
        this.replace(() => this.show(Simulation.load(JSON.stringify(scenario.trace)), { kind: "scenario", id }));
    }

    /** A world in which nothing has happened yet, for chance to play. Throws where no world can be made of the settings. */
    openFree(settings: Partial<Settings>): void {
        const simulation = new Simulation(settings);
        this.replace(() => this.show(simulation, { kind: "free", settings: simulation.settings(), chance: 0 }));
    }

    /** A run that somebody recorded, as JSON, at a position. */
    openTrace(json: string, title: string, position = 0): void {
        this.openRun(Simulation.load(json), title, position);
    }

    private openRun(simulation: Simulation, title: string, position: number): void {
        this.replace(() => {
            this.show(simulation, { kind: "trace", settings: simulation.settings(), title });
            this.seek(position);
        });
    }

    /** A file: a trace, or the log of a live server. */
    openFile(text: string, name: string): void {
        this.attempt(() => {
            if (looksLikeAudit(text)) {
                const recording = parseAudit(text);
                this.replace(() => this.openRecording({ recording, isOfServer: false, position: 0 }));
            } else this.openRun(openedFile(text, name), name, 0);
            this.tell(`\`${name}\` is open`, false);
        });
    }

    /** The log of the server that offers the page, at its end: what is latest is of interest. */
    openServed(text: string): void {
        this.attempt(() => {
            const recording = parseAudit(text);
            this.replace(() => this.openRecording({ recording, isOfServer: true, position: recording.length }));
        });
    }

    private openRecording({ recording, isOfServer, position }: Extract<Kept, { recording: Recording }>): void {
        const settings = new Simulation().settings();
        batch(() => {
            this.show(undefined, { kind: "trace", settings, title: "a live server's log" });
            this.recording.value = recording;
            this.isOfServer.value = isOfServer;
        });
        this.seek(position);
    }

    /** What is open now; nothing before anything is. */
    keep(): Kept | undefined {
        const recording = this.recording.peek();
        if (recording) return { recording, isOfServer: this.isOfServer.peek(), position: this.position.peek() };
        const link = this.linkState();
        return link && { link };
    }

    /** Brings back what was kept. */
    bringBack(kept: Kept): void {
        if ("link" in kept) this.openLink(kept.link);
        else this.openRecording(kept);
    }

    private replace(open: () => void): void {
        const before = this.keep();
        open();
        if (before) this.replaced?.(before);
    }

    private show(simulation: Simulation | undefined, origin: Origin): void {
        const before = this.simulation.peek();
        batch(() => {
            this.pause();
            // What was told was about the run that was open.
            this.notice.value = undefined;
            this.recording.value = undefined;
            this.simulation.value = simulation;
            this.origin.value = origin;
            this.isBent.value = false;
            this.isShortest.value = false;
            this.rulesOff.value = simulation?.settings().rules_off ?? [];
            this.chance = origin.kind === "free" ? origin.chance : 0;
            this.autopilot = new Autopilot();
            this.moved();
        });
        before?.free();
    }

    /** The simulation has gone somewhere else, or has had other events. */
    private moved(): void {
        this.position.value = this.simulation.peek()?.position ?? 0;
        this.revision.value += 1;
    }

    /** Goes to a position. */
    seek(position: number): void {
        const target = Math.max(0, Math.min(this.length.peek(), Math.round(position)));
        this.simulation.peek()?.seek(target);
        this.position.value = target;
    }

    /** One event back. */
    back(): void {
        this.pause();
        this.seek(this.position.peek() - 1);
    }

    /** One event on; at the end what comes next by itself. */
    step(): void {
        this.pause();
        this.advance();
    }

    /** One event on. False where nothing is left to happen. */
    advance(): boolean {
        if (this.position.peek() < this.length.peek()) {
            this.seek(this.position.peek() + 1);
            return true;
        }
        return this.goOn();
    }

    private goOn(except?: MessageId): boolean {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return false;
        const isFree = this.origin.peek().kind === "free";
        if (isFree && except === undefined) return this.playByChance(simulation, 1) > 0;
        if (!this.isBent.peek() && except === undefined) return false;
        const event = this.autopilot.next(simulation, except);
        if (event === undefined) return false;
        simulation.apply(event);
        this.moved();
        return true;
    }

    private playByChance(simulation: Simulation, events: number): number {
        const isPure = this.chance === simulation.length && simulation.position === simulation.length;
        if (simulation.view().violation) return 0;
        const played = simulation.play(events);
        if (isPure) this.chance = simulation.length;
        else this.isBent.value = true;
        this.moved();
        return played;
    }

    /** Lets chance play many events at once. */
    playMany(events: number): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        simulation.seek(simulation.length);
        this.playByChance(simulation, events);
    }

    /** Lets something happen here. What was to happen afterwards is gone. */
    bend(event: Happening): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        this.pause();
        this.attempt(() => {
            simulation.apply(event);
            batch(() => {
                this.isBent.value = true;
                this.autopilot = new Autopilot();
                this.moved();
            });
            this.meddled?.();
        });
    }

    /** Lets something else happen before a message arrives. */
    delay(message: MessageId): void {
        this.pause();
        this.attempt(() => {
            const simulation = this.simulation.peek();
            if (simulation === undefined) return;
            this.autopilot = new Autopilot();
            this.isBent.value = true;
            if (!this.goOn(message)) this.tell("nothing else is left to happen: this message is what everybody waits for", false);
        });
    }

    /** Lets a user ask for something, and plays until the lease is about to be committed. */
    ask(save: Happening): void {
        this.bend(save);
        this.play();
        this.awaited = "commit";
    }

    /** Takes the loss of a request back, the last event's or another's: it arrives, and its answer is lost. */
    loseAnswerInstead(before = this.position.peek() - 1): void {
        const simulation = this.simulation.peek();
        const message = simulation && about(simulation.entries(before, before + 1)[0]?.event ?? "forget").message;
        if (message === undefined) return;
        this.seek(before);
        this.bend({ deliver: message });
        const answer = simulation?.entries(before, before + 1)[0]?.sent[0];
        if (answer) this.bend({ drop: answer.id });
    }

    /** Ends all trouble from here on, and plays what follows until all is calm. */
    settle(): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        const start = simulation.position;
        this.attempt(() => {
            simulation.settle();
            simulation.seek(start);
            batch(() => {
                this.isBent.value = true;
                this.moved();
            });
            this.play();
        });
    }

    /** Switches a rule off or on, and plays the same events as far as they can still happen: another run in this one's place. */
    setRule(rule: Rule, isOff: boolean): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        const position = simulation.position;
        const trace = JSON.parse(simulation.trace()) as { settings: Settings; events: Happening[] };
        const others = this.rulesOff.peek().filter((one) => one !== rule);
        const settings = { ...trace.settings, rules_off: isOff ? [...others, rule] : others };
        const again = replay(new Simulation(settings), trace.events);
        again.simulation.seek(position);
        this.replace(() => this.showAgain(again, settings));
        if (again.isCut) this.tell("from here on the run goes another way: play on to see", false);
    }

    private showAgain({ simulation, isCut }: Replayed, settings: Settings): void {
        const origin = this.origin.peek();
        const isBent = this.isBent.peek() || isCut;
        batch(() => {
            this.show(simulation, origin.kind === "scenario" ? origin : { ...origin, settings });
            this.chance = 0;
            this.isBent.value = isBent;
        });
    }

    /** Starts playing. */
    play(): void {
        if (this.atEnd.peek() && !this.canGoOn()) this.seek(0);
        this.awaited = undefined;
        this.isPlaying.value = true;
    }

    /** Stops playing. */
    pause(): void {
        this.awaited = undefined;
        this.isPlaying.value = false;
    }

    /** Whether what playing stops for is under way. */
    isAwaitedUnderWay(): boolean {
        const says = this.awaited;
        return says !== undefined && (this.view.peek()?.messages.some((message) => !message.is_answer && message.says === says) ?? false);
    }

    /** What has happened, and is to happen. */
    events(): Happening[] {
        const simulation = this.simulation.peek();
        return simulation ? (JSON.parse(simulation.trace()) as { events: Happening[] }).events : [];
    }

    /** Whether more can happen at the end of the run. */
    canGoOn(): boolean {
        const simulation = this.simulation.peek();
        if (simulation === undefined || simulation.view().violation) return false;
        if (this.origin.peek().kind === "free") return true;
        if (!this.isBent.peek()) return false;
        return this.autopilot.hasNext(simulation);
    }

    /** Tells a person something. */
    tell(text: string, isError: boolean): void {
        this.notice.value = { text, isError };
    }

    /** Does what may fail, and tells in words if it does. */
    attempt(what: () => void): void {
        try {
            what();
        } catch (error) {
            this.tell(error instanceof Error ? error.message : String(error), true);
        }
    }

    /** The run as a file's content. */
    traceText(): string | undefined {
        return this.simulation.peek()?.trace();
    }

    /** All that a link has to say; undefined where no link can say it. */
    linkState(): LinkState | undefined {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return undefined;
        const origin = this.origin.peek();
        const searched = this.search.searched.peek();
        const state = {
            ...(searched ? { searched } : {}),
            rulesOff: this.rulesOff.peek(),
            position: this.position.peek(),
            view: { speed: this.speed.peek(), allLanes: this.allLanes.peek() },
        };
        if (origin.kind === "free" && !this.isBent.peek() && this.chance === simulation.length) {
            return { ...state, origin: { ...origin, chance: this.chance } };
        }
        const events = this.events();
        const scenario = this.scenario.peek();
        if (origin.kind === "scenario" && scenario) {
            const bends = bendsOf(scenario, events);
            return { ...state, origin, ...(bends ? { bends } : {}) };
        }
        const settled: Origin = origin.kind === "free" ? { ...origin, chance: 0 } : origin;
        return { ...state, origin: settled, bends: { kept: 0, events } };
    }

    /** Opens what a link says. Throws where it is damaged; what is open stays then. */
    openLink(link: LinkState): void {
        const { simulation, origin, isBent, doubts } = openedBy(link);
        const isKnown = SPEEDS.includes(link.view.speed);
        batch(() => {
            this.show(simulation, origin);
            this.isBent.value = isBent;
            if (origin.kind === "free" && !link.bends) this.chance = simulation.length;
            this.speed.value = isKnown ? link.view.speed : DEFAULT_VIEW.speed;
            this.allLanes.value = link.view.allLanes;
            this.search.show(link.searched);
            this.seek(link.position);
        });
        if (!isKnown) doubts.push(`the link's speed is none of the page's, so it plays ${DEFAULT_VIEW.speed} events a second`);
        if (doubts.length > 0) this.tell(doubts.join("; "), true);
    }
}
