import { signal } from "@preact/signals";

import type { LockSettings, Rates, Settings } from "../model/protocol";
import { RATE_NAMES } from "../model/texts";
import { CELLS_FIELD, CLAIM_FIELDS, DEFAULTS, formOf, LANES_FIELD, LOCK_FIELDS, MODES, settingsOf, ticksToExpire, type WorldKind } from "../model/world_form";
import { session } from "../session/app";
import { pane } from "./navigation";
import { focusInvalidField, Field } from "./number_field";

/** The world that the form shows. */
const form = signal(formOf({ ...DEFAULTS, seed: 1 }));

const MANY_EVENTS = 10_000;
const [MAX_RATE, MAX_FAULT_RATE] = [600, 100];

const KINDS: [WorldKind, string][] = [
    ["claims", "claims of names"],
    ["locks", "sessions and locks"],
    ["queues", "a queue of requests"],
];

/** The kinds of random events that are not faults, for the first part of the form. */
const NORMAL_EVENTS: (keyof Rates)[] = ["save", "step", "deliver", "wait"];

/** Fills the form with the settings of a world. */
export function showWorld(settings: Settings): void {
    form.value = formOf(settings);
}

function set(change: Partial<Settings>): void {
    form.value = { ...form.value, settings: { ...form.value.settings, ...change } };
}

function setLocks(change: Partial<LockSettings>): void {
    form.value = { ...form.value, locks: { ...form.value.locks, ...change } };
}

/**
 * Opens the world of the form. If a field is invalid, the open run stays and the field gets the
 * focus.
 */
function start(element: HTMLFormElement | null, begin: (settings: Settings) => void): void {
    if (focusInvalidField(element)) return;
    session.notifyOnError(() => {
        begin(settingsOf(form.value, session.rulesOff.peek()));
        pane.value = "run";
    });
}

function playWorld(settings: Settings): void {
    session.openFree(settings);
    session.play();
}

function playManyEvents(settings: Settings): void {
    session.openFree(settings);
    session.playMany(MANY_EVENTS);
}

/** Shows the form for a world of the person's own, with random events or without. */
export function FreePlay() {
    const { kind, settings } = form.value;
    return (
        <form
            class="free"
            noValidate
            onSubmit={(event) => {
                event.preventDefault();
                start(event.currentTarget, playWorld);
            }}
        >
            <p>Make a world of your own. Random events happen in it, or only those that you choose. The same seed gives the same run in every browser.</p>
            <KindFields />
            <Field label="seed" value={settings.seed} min={0} max={Number.MAX_SAFE_INTEGER} hasRange={false} set={(value) => set({ seed: value })} />
            <Field {...CELLS_FIELD} value={settings.cells} set={(value) => set({ cells: value })} />
            {kind === "claims" ? <ClaimFields /> : <LockFields />}
            <div class="starts">
                <button type="submit" class="primary">
                    Play this world
                </button>
                <button type="button" onClick={(event) => start(event.currentTarget.form, playManyEvents)}>
                    {MANY_EVENTS.toLocaleString("en")} events at once
                </button>
                <button type="button" onClick={(event) => start(event.currentTarget.form, (world) => session.openFree(world, true))}>
                    Start by hand, without random events
                </button>
            </div>
        </form>
    );
}

function KindFields() {
    return (
        <fieldset class="kinds">
            <legend>The world has</legend>
            {KINDS.map(([kind, label]) => (
                <label key={kind}>
                    <input type="radio" name="kind" value={kind} checked={form.value.kind === kind} onChange={() => (form.value = { ...form.value, kind })} />
                    {label}
                </label>
            ))}
        </fieldset>
    );
}

function ClaimFields() {
    const { settings } = form.value;
    const mode = MODES.find(([, , list]) => list.join() === settings.modes.join())?.[0] ?? "before";
    return (
        <>
            {CLAIM_FIELDS.map((field) => (
                <Field key={field.name} {...field} value={settings[field.name]} set={(value) => set({ [field.name]: value })} />
            ))}
            <label class="field">
                <span>leases begin</span>
                <select value={mode} onChange={(event) => set({ modes: MODES.find(([key]) => key === event.currentTarget.value)?.[2] ?? ["before_commit"] })}>
                    {MODES.map(([key, label]) => (
                        <option key={key} value={key}>
                            {label}
                        </option>
                    ))}
                </select>
            </label>
            <RateFields />
        </>
    );
}

function LockFields() {
    const { kind, locks } = form.value;
    const fields = LOCK_FIELDS.filter(({ name }) => kind === "locks" || name !== "count");
    return (
        <>
            {kind === "queues" && <Field {...LANES_FIELD} value={locks.lanes ?? LANES_FIELD.min} set={(lanes) => setLocks({ lanes })} />}
            {fields.map((field) => (
                <Field key={field.name} {...field} value={locks[field.name]} set={(value) => setLocks({ [field.name]: value })} />
            ))}
            <p>
                A client renews its session. A session that is silent expires after duration and grace, and {kind === "locks" ? "its locks pass on" : "its requests come back"}. Here that takes {ticksToExpire(locks)} ticks of the service: the first one after a renewal does not count.
            </p>
        </>
    );
}

function RateFields() {
    const { rates } = form.value.settings;
    const keys = Object.keys(RATE_NAMES) as (keyof Rates)[];
    const change = (key: keyof Rates, value: number) => set({ rates: { ...rates, [key]: value } });
    const disableFaults = () => set({ rates: Object.fromEntries(keys.map((key) => [key, NORMAL_EVENTS.includes(key) ? DEFAULTS.rates[key] : 0])) as unknown as Rates });
    return (
        <details>
            <summary>Rates of random events</summary>
            <p class="starts">
                <button type="button" onClick={disableFaults}>
                    No faults
                </button>
                <button type="button" onClick={() => set({ rates: DEFAULTS.rates })}>
                    Defaults
                </button>
            </p>
            {keys.map((key) => (
                <label class="field" key={key}>
                    <span>{RATE_NAMES[key]}</span>
                    <input type="range" min={0} max={NORMAL_EVENTS.includes(key) ? MAX_RATE : MAX_FAULT_RATE} value={rates[key]} onInput={(event) => change(key, Number(event.currentTarget.value))} />
                    <output>{rates[key]}</output>
                </label>
            ))}
        </details>
    );
}
