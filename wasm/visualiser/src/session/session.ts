// The session: the run or log that the page shows, the position in it, and everything that a person
// can do with it.
//
// The simulation object contains the state of the run. The signals contain only the values by which
// components notice a change. `revision` grows whenever the events of the run change.
import { batch, computed, signal } from "@preact/signals";
import { Simulation } from "leasehold/simulation";

import { looksLikeAudit, parseAudit, Recording } from "../model/audit";
import { Autopilot } from "../model/autopilot";
import { partsOf } from "../model/events";
import { DEFAULT_VIEW, type LinkState, tourLink } from "../model/link";
import { divergenceFrom, isWorldByHand, type Origin } from "../model/origin";
import { verdictFor, type Verdict } from "../model/outcome";
import type { MessageId, Rule, Scenario, Settings, Timeline, View, WorldEvent } from "../model/protocol";
import { FIRST_SCENARIO_ID, scenarioById, setUpOf } from "../model/scenarios";
import { playSilence } from "../model/silence";
import { replay, type ReplayResult, runFromFile, runFromLink } from "./loading";
import { Search } from "./search";

/** The playback speeds that a person can choose, in events per second. */
export const SPEEDS = [0.5, 1, 2, 5, 10, 50, 200, 1000];

/**
 * The largest number of events in a run that is scanned as a whole. A longer scan would take more
 * than a frame.
 */
export const MAX_SCANNED_EVENTS = 1500;

/** A message that the page shows to the person. */
export interface Notice {
    text: string;
    isError: boolean;
}

/**
 * The data from which the open run or log can be restored: a run as a link, or a log with a
 * position.
 */
export type Snapshot = { link: LinkState } | { recording: Recording; isFromServer: boolean; position: number };

/** The session of the page: the open run or log, and the position in it. */
export class Session {
    readonly origin = signal<Origin>({ kind: "scenario", id: FIRST_SCENARIO_ID });
    /** The open run; `undefined` while a log is open. */
    readonly simulation = signal<Simulation | undefined>(undefined);
    /** The open log of a live server; `undefined` while a run is open. */
    readonly recording = signal<Recording | undefined>(undefined);
    /** True if the open log comes from the server that serves the page. */
    readonly isFromServer = signal(false);
    readonly position = signal(0);
    /** A number that grows whenever the events of the run change. */
    readonly revision = signal(0);
    readonly rulesOff = signal<Rule[]>([]);
    readonly isPlaying = signal(false);
    readonly speed = signal(DEFAULT_VIEW.speed);
    readonly allLanes = signal(DEFAULT_VIEW.allLanes);
    /** True if consecutive local steps of a cell share a row. */
    readonly mergedSteps = signal(DEFAULT_VIEW.mergedSteps);
    readonly notice = signal<Notice | undefined>(undefined);
    /** True if a person has changed the events of the run since it was opened. */
    readonly isEdited = signal(false);
    /** The number of the tour's step whose run is open. */
    readonly openStep = signal<number | undefined>(undefined);
    /**
     * The number of the tour's step that the page shows; `undefined` outside the tour. A person who
     * changes the run leaves the tour, because the text of the step would no longer hold.
     */
    readonly tourStep = computed(() => (this.isEdited.value ? undefined : this.openStep.value));
    /** True if the run was opened as the shortest trace that leads to its violation. */
    readonly isShortest = signal(false);
    /** True if the run may contain events that are not needed for its violation. */
    readonly canShorten = computed(() => !this.isShortest.value || this.isEdited.value);

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
        return origin.kind === "scenario" ? scenarioById(origin.id) : undefined;
    });
    /**
     * The number of played events that set the scene of the scenario; `undefined` at each other
     * position, and in a run that a person has changed.
     */
    readonly setUp = computed<number | undefined>(() => {
        const setUp = setUpOf(this.scenario.value?.id ?? "");
        return setUp > 0 && setUp === this.position.value && !this.isEdited.value ? setUp : undefined;
    });
    readonly marks = computed(() => {
        this.revision.value;
        return this.timeline.value?.marks() ?? { faults: [] };
    });
    /**
     * The outcome of the run. `undefined` for an unchanged scenario, and for a run that is too long
     * to scan.
     */
    readonly verdict = computed<Verdict | undefined>(() => {
        this.revision.value;
        const simulation = this.simulation.value;
        const isChanged = this.isEdited.value || this.rulesOff.value.length > 0 || this.origin.value.kind === "trace";
        return simulation && isChanged ? this.verdictOf(simulation) : undefined;
    });
    readonly atEnd = computed(() => this.position.value >= this.length.value);

    /**
     * Called after the open run or log was replaced by another, with a snapshot of the former one.
     */
    onReplace: ((before: Snapshot) => void) | undefined;

    /** Called after a person has applied an event to the run. */
    onEdit: (() => void) | undefined;

    /** Creates a session without a run. Links of the session contain the result of `search`. */
    constructor(readonly search = new Search()) {}

    /** The number of random events at the start of the run, before a person applied an event. */
    private randomEvents = 0;
    private autopilot = new Autopilot();
    /**
     * The text of the request for which playback waits: playback stops while that message is in
     * flight.
     */
    private awaitedRequest: string | undefined;
    /** The position at which playback stops. */
    private stopPosition: number | undefined;

    private verdictOf(simulation: Simulation): Verdict | undefined {
        const { violation } = this.marks.value;
        const isLong = simulation.length > MAX_SCANNED_EVENTS;
        // A run of random events never ends by itself, so it has no outcome unless it has a
        // violation.
        if ((this.isRandom() || isLong) && violation === undefined) return undefined;
        const entries = isLong && violation !== undefined ? simulation.entries(violation, violation + 1) : simulation.entries(0, simulation.length);
        const position = simulation.position;
        simulation.seek(simulation.length);
        const run = { entries, view: simulation.view(), rulesOff: this.rulesOff.value, canContinue: this.canContinue() };
        simulation.seek(position);
        return verdictFor(run);
    }

    /** Opens the scenario with this id. The events that set the scene are played already. */
    openScenario(id: string): void {
        const scenario = scenarioById(id);
        if (scenario === undefined) return this.notify(`there is no scenario \`${id}\`: choose one of the list`, true);
        this.replace(() => {
            batch(() => {
                this.show(Simulation.load(JSON.stringify(scenario.trace)), { kind: "scenario", id });
                this.seek(setUpOf(id));
            });
        });
    }

    /**
     * Opens a step of the tour at its end. The run that was open before the tour stays in the
     * history.
     */
    openTourStep(number: number): void {
        const open = () => this.openLink(tourLink(number));
        if (this.tourStep.peek() === undefined) this.replace(open);
        else open();
    }

    /** Leaves the tour. The run of its step stays open. */
    leaveTour(): void {
        this.openStep.value = undefined;
    }

    /**
     * Opens a run without events, to which random events can be added, or with `isByHand` those of
     * a person and of the autopilot. Throws if no world can have these settings.
     */
    openFree(settings: Partial<Settings>, isByHand = false): void {
        const simulation = new Simulation(settings);
        const byHand = isByHand ? { isByHand: true as const } : {};
        this.replace(() => this.show(simulation, { kind: "free", settings: simulation.settings(), randomEvents: 0, ...byHand }));
    }

    /** Opens the run of a trace at a position. Throws if the text is not a trace. */
    openTrace(json: string, title: string, position = 0): void {
        this.openRun(Simulation.load(json), title, position);
    }

    private openRun(simulation: Simulation, title: string, position: number): void {
        this.replace(() => {
            this.show(simulation, { kind: "trace", settings: simulation.settings(), title });
            this.seek(position);
        });
    }

    /** Opens the contents of a file: a trace, or the audit log of a live server. */
    openFile(text: string, name: string): void {
        this.notifyOnError(() => {
            if (looksLikeAudit(text)) {
                const recording = parseAudit(text);
                this.replace(() => this.openRecording({ recording, isFromServer: false, position: 0 }));
            } else this.openRun(runFromFile(text, name), name, 0);
            this.notify(`\`${name}\` is open`, false);
        });
    }

    /**
     * Opens the audit log of the server that serves the page. The log is shown at its end, because
     * the latest lines matter most.
     */
    openServerLog(text: string): void {
        this.notifyOnError(() => {
            const recording = parseAudit(text);
            this.replace(() => this.openRecording({ recording, isFromServer: true, position: recording.length }));
        });
    }

    private openRecording({ recording, isFromServer, position }: Extract<Snapshot, { recording: Recording }>): void {
        const settings = new Simulation().settings();
        batch(() => {
            this.show(undefined, { kind: "trace", settings, title: "a live server's log" });
            this.recording.value = recording;
            this.isFromServer.value = isFromServer;
        });
        this.seek(position);
    }

    /** Returns a snapshot of the open run or log, or `undefined` before anything was opened. */
    snapshot(): Snapshot | undefined {
        const recording = this.recording.peek();
        if (recording) return { recording, isFromServer: this.isFromServer.peek(), position: this.position.peek() };
        const link = this.linkState();
        return link && { link };
    }

    /** Opens the run or log of a snapshot, at its position. */
    restore(snapshot: Snapshot): void {
        if ("link" in snapshot) this.openLink(snapshot.link);
        else this.openRecording(snapshot);
    }

    private replace(open: () => void): void {
        const before = this.snapshot();
        open();
        if (before) this.onReplace?.(before);
    }

    private show(simulation: Simulation | undefined, origin: Origin): void {
        const before = this.simulation.peek();
        batch(() => {
            this.pause();
            // Close the notice, because it concerns the run that was open before.
            this.notice.value = undefined;
            this.recording.value = undefined;
            this.simulation.value = simulation;
            this.origin.value = origin;
            this.isEdited.value = false;
            this.openStep.value = undefined;
            this.isShortest.value = false;
            this.rulesOff.value = simulation?.settings().rules_off ?? [];
            this.randomEvents = origin.kind === "free" ? origin.randomEvents : 0;
            this.autopilot = new Autopilot();
            this.onEventsChanged();
        });
        // Free the run's wasm memory explicitly: the garbage collector does not know how large it
        // is.
        before?.free();
    }

    /** Updates the signals after the events or the position of the simulation have changed. */
    private onEventsChanged(): void {
        batch(() => {
            this.position.value = this.simulation.peek()?.position ?? 0;
            this.revision.value += 1;
        });
    }

    /** Moves to a position of the run, or to the nearest one that the run has. */
    seek(position: number): void {
        const target = Math.max(0, Math.min(this.length.peek(), Math.round(position)));
        this.simulation.peek()?.seek(target);
        this.position.value = target;
    }

    /** Pauses playback, and moves one event back. */
    back(): void {
        this.pause();
        this.seek(this.position.peek() - 1);
    }

    /** Pauses playback, and moves one event forward. */
    step(): void {
        this.pause();
        this.advance();
    }

    /**
     * Moves one event forward. At the end of the run, adds the event that comes next. Returns false
     * if there is none.
     */
    advance(): boolean {
        if (this.position.peek() < this.length.peek()) {
            this.seek(this.position.peek() + 1);
            return true;
        }
        return this.extend();
    }

    /**
     * Adds an event at the end: a random one in a run of random events, the autopilot's in an
     * edited run. Returns false in an unchanged scenario, which ends as recorded. The message
     * `except` is not delivered.
     */
    private extend(except?: MessageId): boolean {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return false;
        if (this.isRandom() && except === undefined) return this.playRandom(simulation, 1) > 0;
        if (!this.isChangedByHand() && except === undefined) return false;
        const event = this.autopilot.next(simulation, except);
        if (event === undefined) return false;
        simulation.apply(event);
        this.onEventsChanged();
        return true;
    }

    private playRandom(simulation: Simulation, events: number): number {
        const isUnedited = this.randomEvents === simulation.length && simulation.position === simulation.length;
        if (simulation.view().violation) return 0;
        const played = simulation.play(events);
        if (isUnedited) this.randomEvents = simulation.length;
        else this.isEdited.value = true;
        this.onEventsChanged();
        return played;
    }

    /** Moves to the end of the run, and adds up to this number of random events. */
    playMany(events: number): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        simulation.seek(simulation.length);
        this.playRandom(simulation, events);
    }

    /** Applies an event at the position. The events after the position are dropped. */
    applyEvent(event: WorldEvent): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        this.pause();
        this.notifyOnError(() => {
            simulation.apply(event);
            batch(() => {
                this.isEdited.value = true;
                this.autopilot = new Autopilot();
                this.onEventsChanged();
            });
            this.onEdit?.();
        });
    }

    /**
     * Applies the next event that is not the delivery of this message, so that the message arrives
     * later.
     */
    delay(message: MessageId): void {
        this.pause();
        this.notifyOnError(() => {
            const simulation = this.simulation.peek();
            if (simulation === undefined) return;
            this.autopilot = new Autopilot();
            this.isEdited.value = true;
            if (!this.extend(message)) this.notify("nothing else can happen: every process waits for this message", false);
        });
    }

    /**
     * Applies the save of a user again, and plays until the commit request of its lease is in
     * flight.
     */
    repeatSave(save: WorldEvent): void {
        this.applyEvent(save);
        this.play();
        this.awaitedRequest = "commit";
    }

    /**
     * Replaces the event at a position that dropped a request: the request now arrives, and its
     * answer is lost. The default is the last event.
     */
    loseAnswerInstead(position = this.position.peek() - 1): void {
        const simulation = this.simulation.peek();
        const message = simulation && partsOf(simulation.entries(position, position + 1)[0]?.event ?? "forget").message;
        if (message === undefined) return;
        this.seek(position);
        this.applyEvent({ deliver: message });
        const answer = simulation?.entries(position, position + 1)[0]?.sent[0];
        if (answer) this.applyEvent({ drop: answer.id });
    }

    /** Drops the events after the position, and plays without faults until the run is at rest. */
    quiesce(): void {
        this.appendAndPlay((simulation) => simulation.quiesce());
    }

    /**
     * Drops the events after the position, and plays the silence of a cell's client until its
     * session has expired. Playback stops there.
     */
    expire(cell: number): void {
        this.appendAndPlay((simulation) => playSilence(simulation, cell));
        this.stopPosition = this.length.peek();
        this.onEdit?.();
    }

    /** Appends events at the position, and plays them. */
    private appendAndPlay(append: (simulation: Simulation) => void): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        const start = simulation.position;
        this.notifyOnError(() => {
            append(simulation);
            simulation.seek(start);
            batch(() => {
                this.isEdited.value = true;
                this.autopilot = new Autopilot();
                this.onEventsChanged();
            });
            this.play();
        });
    }

    /**
     * Switches a rule off or on, and replays the same events up to the first impossible one. The
     * result is opened as another run.
     */
    setRule(rule: Rule, isOff: boolean): void {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return;
        const position = simulation.position;
        const trace = JSON.parse(simulation.trace()) as { settings: Settings; events: WorldEvent[] };
        const others = this.rulesOff.peek().filter((other) => other !== rule);
        const settings = { ...trace.settings, rules_off: isOff ? [...others, rule] : others };
        const result = replay(new Simulation(settings), trace.events);
        result.simulation.seek(position);
        this.replace(() => this.showReplay(result, settings));
        if (result.isTruncated) this.notify("from here on the run takes another course: play on to see it", false);
    }

    private showReplay({ simulation, isTruncated }: ReplayResult, settings: Settings): void {
        const origin = this.origin.peek();
        const isEdited = this.isEdited.peek() || isTruncated;
        batch(() => {
            this.show(simulation, origin.kind === "scenario" ? origin : { ...origin, settings });
            this.randomEvents = 0;
            this.isEdited.value = isEdited;
        });
    }

    /** Starts playback, from the start of the run if the position is at its end. */
    play(): void {
        if (this.atEnd.peek() && !this.canContinue()) this.seek(0);
        this.awaitedRequest = undefined;
        this.stopPosition = undefined;
        this.isPlaying.value = true;
    }

    /** Plays the events from one position to another. */
    playBetween(from: number, to: number): void {
        this.seek(from);
        this.play();
        this.stopPosition = to;
    }

    /** Stops playback at the position. */
    pause(): void {
        this.awaitedRequest = undefined;
        this.stopPosition = undefined;
        this.isPlaying.value = false;
    }

    /**
     * Returns true if playback must stop here: at its last position, or if the request for which it
     * waits is in flight.
     */
    mustStop(): boolean {
        if (this.stopPosition !== undefined && this.position.peek() >= this.stopPosition) return true;
        const text = this.awaitedRequest;
        return text !== undefined && (this.view.peek()?.messages.some((message) => !message.is_answer && message.says === text) ?? false);
    }

    /** Returns all events of the run. */
    events(): WorldEvent[] {
        const simulation = this.simulation.peek();
        return simulation ? (JSON.parse(simulation.trace()) as { events: WorldEvent[] }).events : [];
    }

    /** Returns true if random events continue the run. */
    private isRandom(): boolean {
        const origin = this.origin.value;
        return origin.kind === "free" && !isWorldByHand(origin);
    }

    /** Returns true if a person has made or changed the run, so that the autopilot continues it. */
    private isChangedByHand(): boolean {
        return this.isEdited.peek() || this.origin.peek().kind === "free";
    }

    /** Returns true if playback can add an event at the end of the run. */
    canContinue(): boolean {
        const simulation = this.simulation.peek();
        if (simulation === undefined || simulation.view().violation) return false;
        if (this.isRandom()) return true;
        if (!this.isChangedByHand()) return false;
        return this.autopilot.hasNext(simulation);
    }

    /** Shows a notice to the person, as an error or as information. */
    notify(text: string, isError: boolean): void {
        this.notice.value = { text, isError };
    }

    /** Runs an action. If the action throws an error, shows the error as a notice. */
    notifyOnError(action: () => void): void {
        try {
            action();
        } catch (error) {
            this.notify(error instanceof Error ? error.message : String(error), true);
        }
    }

    /** Returns the run as the text of a file, or `undefined` if a log is open. */
    traceText(): string | undefined {
        return this.simulation.peek()?.trace();
    }

    /**
     * Returns the state that a link contains, or `undefined` if a log is open. A log is too long
     * for a link.
     */
    linkState(): LinkState | undefined {
        const simulation = this.simulation.peek();
        if (simulation === undefined) return undefined;
        const origin = this.origin.peek();
        const searchResult = this.search.result.peek();
        const tour = this.tourStep.peek();
        const state = {
            ...(tour === undefined ? {} : { tour }),
            ...(searchResult ? { searchResult } : {}),
            rulesOff: this.rulesOff.peek(),
            position: this.position.peek(),
            view: { speed: this.speed.peek(), allLanes: this.allLanes.peek(), mergedSteps: this.mergedSteps.peek() },
        };
        if (origin.kind === "free" && !this.isEdited.peek() && this.randomEvents === simulation.length) {
            return { ...state, origin: { ...origin, randomEvents: this.randomEvents } };
        }
        const events = this.events();
        const scenario = this.scenario.peek();
        if (origin.kind === "scenario" && scenario) {
            const divergence = divergenceFrom(scenario, events);
            return { ...state, origin, ...(divergence ? { divergence } : {}) };
        }
        const withoutRandom: Origin = origin.kind === "free" ? { ...origin, randomEvents: 0 } : origin;
        return { ...state, origin: withoutRandom, divergence: { kept: 0, events } };
    }

    /**
     * Opens the state that a link contains. Throws `LinkError` if the link is damaged; the open run
     * then stays.
     */
    openLink(link: LinkState): void {
        const { simulation, origin, isEdited, warnings } = runFromLink(link);
        const isKnownSpeed = SPEEDS.includes(link.view.speed);
        batch(() => {
            this.show(simulation, origin);
            this.isEdited.value = isEdited;
            this.openStep.value = link.tour;
            if (origin.kind === "free" && !link.divergence) this.randomEvents = simulation.length;
            this.speed.value = isKnownSpeed ? link.view.speed : DEFAULT_VIEW.speed;
            this.allLanes.value = link.view.allLanes;
            this.mergedSteps.value = link.view.mergedSteps;
            this.search.show(link.searchResult);
            this.seek(Math.max(0, link.position));
        });
        if (!isKnownSpeed) warnings.push(`the link's speed is not one of the page's: it plays ${DEFAULT_VIEW.speed} events a second`);
        if (warnings.length > 0) this.notify(warnings.join("; "), true);
    }
}
