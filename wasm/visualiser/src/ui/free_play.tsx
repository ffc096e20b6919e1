import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { Mode, Rates, Settings } from "../model/protocol";
import { RATE_NAMES, wholeNumber } from "../model/words";
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

/** Number fields as a person has left them, where they say no number that is allowed. */
const wrong = signal<ReadonlySet<string>>(new Set());

/** Plays the world that the fields say; where one says none, what is open stays, and that field has the focus. */
function start(form: HTMLFormElement | null, events: number): void {
    if (wrong.peek().size > 0) return form?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
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
            noValidate
            onSubmit={(event) => {
                event.preventDefault();
                start(event.currentTarget, 0);
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
                <button type="button" onClick={(event) => start(event.currentTarget.form, MANY)}>
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

/** A number. What is not allowed is marked and said, and changes nothing. */
function Field({ label, value, min, max, set }: FieldProps) {
    const typed = useSignal<string | undefined>(undefined);
    const text = typed.value ?? String(value);
    const isWrong = wholeNumber(text, min, max) === undefined;
    const note = `allowed-${label.replaceAll(" ", "-")}`;
    const change = (now: string) => {
        const number = wholeNumber(now, min, max);
        typed.value = number === undefined ? now : undefined;
        const others = [...wrong.peek()].filter((one) => one !== label);
        wrong.value = new Set(number === undefined ? [...others, label] : others);
        if (number !== undefined) set(number);
    };
    // Fields that are gone, with their tab, say nothing any more.
    useEffect(() => () => void (wrong.value = new Set([...wrong.peek()].filter((one) => one !== label))), [label]);
    return (
        <div class="number-field">
            <label class="field">
                <span>{label}</span>
                <input
                    type="number"
                    value={text}
                    min={min}
                    max={max}
                    aria-invalid={isWrong}
                    aria-describedby={isWrong ? note : undefined}
                    onInput={(event) => change(event.currentTarget.value)}
                />
            </label>
            {isWrong && (
                <small class="wrong" id={note} role="alert">
                    say a whole number from {min} to {max}
                </small>
            )}
        </div>
    );
}
