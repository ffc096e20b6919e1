import { signal } from "@preact/signals";

import type { Mode, Rates, Settings } from "../model/protocol";
import { RATE_NAMES } from "../model/words";
import { session } from "../session/app";
import { Simulation } from "leasehold/simulation";

const DEFAULTS: Settings = new Simulation().settings();
/** The page's own beginning: fewer names make more quarrels. */
const draft = signal<Settings>({ ...DEFAULTS, seed: 1 });

const MANY = 10_000;
const MOST_RATE = 600;

const SIZES: ["cells" | "workers" | "reconcilers" | "names", string, number, number][] = [
    ["cells", "cells", 1, 8],
    ["workers", "workers in a cell", 1, 8],
    ["reconcilers", "reconcilers in a cell", 0, 4],
    ["names", "names to claim", 1, 32],
];

const MODES: [string, string, Mode[]][] = [
    ["before", "right before COMMIT", ["before_commit"]],
    ["first", "before the transaction", ["lease_first"]],
    ["both", "cells in turn, one or the other", ["before_commit", "lease_first"]],
];

const HARMLESS: (keyof Rates)[] = ["save", "step", "deliver", "wait"];

function set(change: Partial<Settings>): void {
    draft.value = { ...draft.value, ...change };
}

function start(events: number): void {
    session.attempt(() => {
        session.openFree({ ...draft.value, rules_off: session.rulesOff.peek() });
        if (events > 0) session.playMany(events);
        else session.play();
    });
}

/** A world that chance plays. */
export function FreePlay() {
    const { seed, modes } = draft.value;
    const mode = MODES.find(([, , list]) => list.join() === modes.join())?.[0] ?? "before";
    return (
        <form
            class="free"
            onSubmit={(event) => {
                event.preventDefault();
                start(0);
            }}
        >
            <p>Chance decides what happens next. The same seed gives the same run, everywhere.</p>
            <Field label="seed" value={seed} min={0} max={Number.MAX_SAFE_INTEGER} set={(value) => set({ seed: value })} />
            {SIZES.map(([key, label, min, max]) => (
                <Field key={key} label={label} value={draft.value[key]} min={min} max={max} set={(value) => set({ [key]: value })} />
            ))}
            <label class="field">
                <span>leases are begun</span>
                <select value={mode} onChange={(event) => set({ modes: MODES.find(([key]) => key === event.currentTarget.value)?.[2] ?? ["before_commit"] })}>
                    {MODES.map(([key, label]) => (
                        <option key={key} value={key}>
                            {label}
                        </option>
                    ))}
                </select>
            </label>
            <RateFields />
            <div class="starts">
                <button type="submit" class="primary">
                    Play this world
                </button>
                <button type="button" onClick={() => start(MANY)}>
                    {MANY.toLocaleString("en")} events at once
                </button>
            </div>
        </form>
    );
}

function RateFields() {
    const { rates } = draft.value;
    const keys = Object.keys(RATE_NAMES) as (keyof Rates)[];
    const change = (key: keyof Rates, value: number) => set({ rates: { ...rates, [key]: value } });
    const peace = () => set({ rates: Object.fromEntries(keys.map((key) => [key, HARMLESS.includes(key) ? DEFAULTS.rates[key] : 0])) as unknown as Rates });
    return (
        <details>
            <summary>How often what happens</summary>
            <p class="starts">
                <button type="button" onClick={peace}>
                    No faults
                </button>
                <button type="button" onClick={() => set({ rates: DEFAULTS.rates })}>
                    As it was
                </button>
            </p>
            {keys.map((key) => (
                <label class="field" key={key}>
                    <span>{RATE_NAMES[key]}</span>
                    <input type="range" min={0} max={HARMLESS.includes(key) ? MOST_RATE : 100} value={rates[key]} onInput={(event) => change(key, Number(event.currentTarget.value))} />
                    <output>{rates[key]}</output>
                </label>
            ))}
        </details>
    );
}

interface FieldProps {
    label: string;
    value: number;
    min: number;
    max: number;
    set: (value: number) => void;
}

function Field({ label, value, min, max, set }: FieldProps) {
    return (
        <label class="field">
            <span>{label}</span>
            <input type="number" value={value} min={min} max={max} required onChange={(event) => set(Number(event.currentTarget.value))} />
        </label>
    );
}
