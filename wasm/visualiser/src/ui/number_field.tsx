import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { wholeNumber } from "../model/texts";

/** The labels of the form's number fields that contain an invalid value. */
const invalidFields = signal<ReadonlySet<string>>(new Set());

/** Moves the focus to the first invalid field of the form. Returns false if there is none. */
export function focusInvalidField(element: HTMLFormElement | null): boolean {
    if (invalidFields.peek().size === 0) return false;
    element?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
    return true;
}

interface FieldProps {
    label: string;
    value: number;
    min: number;
    max: number;
    set: (value: number) => void;
    /** False if the allowed range is shown only beside an invalid value, because it is too long. */
    hasRange?: boolean;
}

/**
 * Shows a field for a whole number. An invalid value is marked with the allowed range and does not
 * change the settings.
 */
export function Field({ label, value, min, max, set, hasRange = true }: FieldProps) {
    const typed = useSignal<string | undefined>(undefined);
    const text = typed.value ?? String(value);
    const isInvalid = wholeNumber(text, min, max) === undefined;
    const noteId = `allowed-${label.replaceAll(/\W+/g, "-")}`;
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
                    aria-describedby={isInvalid || hasRange ? noteId : undefined}
                    onInput={(event) => change(event.currentTarget.value)}
                />
            </label>
            {isInvalid && (
                <small class="wrong" id={noteId} role="alert">
                    enter a whole number from {min} to {max}
                </small>
            )}
            {!isInvalid && hasRange && (
                <small class="range" id={noteId}>
                    {min} to {max.toLocaleString("en")}
                </small>
            )}
        </div>
    );
}
