import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { Mode, Rates, Settings } from "../model/protocol";
import { RATE_NAMES, wholeNumber } from "../model/texts";
import { session } from "../session/app";
import { Simulation } from "leasehold/simulation";

const DEFAULTS: Settings = new Simulation().settings();
/** The settings of the world that the form shows. */
const form = signal<Settings>({ ...DEFAULTS, seed: 1 });

const MANY_EVENTS = 10_000;
const [MAX_RATE, MAX_FAULT_RATE] = [600, 100];

const SIZES: ["cells" | "workers" | "reconcilers" | "names", string, number, number][] = [
    ["cells", "cells", 1, 8],
    ["workers", "workers in a cell", 1, 8],
    ["reconcilers", "reconcilers in a cell", 0, 4],
    ["names", "names to claim", 1, 32],
];

const MODES: [string, string, Mode[]][] = [
    ["before", "immediately before COMMIT", ["before_commit"]],
    ["first", "before the transaction", ["lease_first"]],
    ["both", "cells alternate between both", ["before_commit", "lease_first"]],
];

/** The kinds of random events that are not faults, for the first part of the form. */
const NORMAL_EVENTS: (keyof Rates)[] = ["save", "step", "deliver", "wait"];

function set(change: Partial<Settings>): void {
    form.value = { ...form.value, ...change };
}

/** The labels of the form's number fields that contain an invalid value. */
const invalidFields = signal<ReadonlySet<string>>(new Set());

/**
 * Opens the world of the form, and plays this number of random events. If a field is invalid, the
 * open run stays and the field gets the focus.
 */
function start(element: HTMLFormElement | null, events: number): void {
    if (invalidFields.peek().size > 0) return element?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
    session.notifyOnError(() => {
        session.openFree({ ...form.value, rules_off: session.rulesOff.peek() });
        if (events > 0) session.playMany(events);
        else session.play();
    });
}

/** Shows the form for a world with random events. */
export function FreePlay() {
    const { seed, modes } = form.value;
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
            <p>Random events happen. The same seed gives the same run in every browser.</p>
            <Field label="seed" value={seed} min={0} max={Number.MAX_SAFE_INTEGER} set={(value) => set({ seed: value })} />
            {SIZES.map(([key, label, min, max]) => (
                <Field key={key} label={label} value={form.value[key]} min={min} max={max} set={(value) => set({ [key]: value })} />
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
            <div class="starts">
                <button type="submit" class="primary">
                    Play this world
                </button>
                <button type="button" onClick={(event) => start(event.currentTarget.form, MANY_EVENTS)}>
                    {MANY_EVENTS.toLocaleString("en")} events at once
                </button>
            </div>
        </form>
    );
}

function RateFields() {
    const { rates } = form.value;
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

interface FieldProps {
    label: string;
    value: number;
    min: number;
    max: number;
    set: (value: number) => void;
}

/**
 * Shows a field for a whole number. An invalid value is marked with the allowed range and does not
 * change the settings.
 */
function Field({ label, value, min, max, set }: FieldProps) {
    const typed = useSignal<string | undefined>(undefined);
    const text = typed.value ?? String(value);
    const isInvalid = wholeNumber(text, min, max) === undefined;
    const noteId = `allowed-${label.replaceAll(" ", "-")}`;
    const change = (input: string) => {
        const number = wholeNumber(input, min, max);
        typed.value = number === undefined ? input : undefined;
        const others = [...invalidFields.peek()].filter((other) => other !== label);
        invalidFields.value = new Set(number === undefined ? [...others, label] : others);
        if (number !== undefined) set(number);
    };
    // When the field is removed with its tab, forget that it is invalid, so that it does not block
    // the form.
    useEffect(() => () => void (invalidFields.value = new Set([...invalidFields.peek()].filter((other) => other !== label))), [label]);
    return (
        <div class="number-field">
            <label class="field">
                <span>{label}</span>
                <input
                    type="number"
                    value={text}
                    min={min}
                    max={max}
                    aria-invalid={isInvalid}
                    aria-describedby={isInvalid ? noteId : undefined}
                    onInput={(event) => change(event.currentTarget.value)}
                />
            </label>
            {isInvalid && (
                <small class="wrong" id={noteId} role="alert">
                    enter a whole number from {min} to {max}
                </small>
            )}
        </div>
    );
}
