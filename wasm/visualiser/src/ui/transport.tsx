import { computed } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { formatDuration } from "../model/texts";
import { session } from "../session/app";
import { SPEEDS } from "../session/session";
import { lastEntry } from "./notice";

const clock = computed(() => formatDuration(session.recording.value ? (lastEntry.value?.at_micros ?? 0) : (session.view.value?.now_micros ?? 0)));

/** Shows the playback controls. */
export function Transport() {
    const isPlaying = session.isPlaying.value;
    return (
        <footer class="transport" aria-label="Playback">
            <div class="buttons">
                <Button label="To the start" title="home" run={() => session.seek(0)} icon="M6 5v14M19 5l-9 7 9 7z" />
                <Button label="Back" title="←" run={() => session.back()} icon="M17 5l-9 7 9 7z" />
                <Button
                    label={isPlaying ? "Pause" : "Play"}
                    title="space"
                    run={() => (isPlaying ? session.pause() : session.play())}
                    icon={isPlaying ? "M8 5v14M16 5v14" : "M7 4l12 8-12 8z"}
                    isMain
                />
                <Button label="Step" title="→" run={() => session.step()} icon="M7 5l9 7-9 7z" />
                <Button label="To the end" title="end" run={() => session.seek(session.length.peek())} icon="M18 5v14M5 5l9 7-9 7z" />
            </div>
            <Scrubber />
            <PositionDisplay />
            <label class="speed">
                <span class="visually-hidden">Speed, in events a second</span>
                <select value={session.speed.value} onChange={(event) => (session.speed.value = Number(event.currentTarget.value))}>
                    {SPEEDS.map((speed) => (
                        <option key={speed} value={speed}>
                            {speed} / s
                        </option>
                    ))}
                </select>
            </label>
            <button type="button" disabled={session.recording.value !== undefined} title="End all faults from here on, and play until every process is idle (s)" onClick={() => session.quiesce()}>
                End all faults
            </button>
        </footer>
    );
}

function PositionDisplay() {
    const [position, length] = [session.position.value, session.length.value];
    // The width is fixed, so that the controls beside it do not move when the position has more
    // digits.
    const letters = 2 * String(length).length + 3;
    return (
        <div class="where" style={{ width: `${letters}ch` }}>
            <output data-testid="position">
                {position} / {length}
            </output>
            <span class="clock" title="The world's clock since the start">
                {clock.value}
            </span>
        </div>
    );
}

interface ButtonProps {
    label: string;
    title: string;
    icon: string;
    run: () => void;
    isMain?: boolean;
}

function Button({ label, title, icon, run, isMain }: ButtonProps) {
    return (
        <button type="button" class={isMain ? "round main-button" : "round"} aria-label={label} title={`${label} (${title})`} onClick={run}>
            <svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">
                <path d={icon} />
            </svg>
        </button>
    );
}

function Scrubber() {
    const length = session.length.value;
    return (
        <div class="scrubber">
            <input
                type="range"
                min={0}
                max={length}
                value={session.position.value}
                aria-label="Position in the run"
                aria-valuetext={`event ${session.position.value} of ${length}`}
                onInput={(event) => {
                    session.pause();
                    session.seek(Number(event.currentTarget.value));
                }}
            />
            <MarkStrip />
        </div>
    );
}

/**
 * Shows the faults and the violation as ticks below the scrubber. All ticks are drawn on one
 * canvas, which is fast for any number.
 */
function MarkStrip() {
    const canvas = useRef<HTMLCanvasElement>(null);
    const [marks, length] = [session.marks.value, session.length.value];
    useEffect(() => {
        if (canvas.current) drawMarks(canvas.current, marks.faults, marks.violation, length);
    }, [marks, length]);
    return <canvas ref={canvas} class="marks" width={1200} height={8} aria-hidden="true" />;
}

function drawMarks(canvas: HTMLCanvasElement, faults: ArrayLike<number>, violation: number | undefined, length: number): void {
    const context = canvas.getContext("2d");
    if (!context) return;
    const colours = getComputedStyle(canvas);
    const x = (position: number) => ((position + 1) / Math.max(1, length)) * (canvas.width - 16) + 8;
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = colours.getPropertyValue("color");
    for (let index = 0; index < faults.length; index += 1) context.fillRect(x(faults[index] ?? 0) - 1, 2, 2, 6);
    if (violation === undefined) return;
    context.fillStyle = colours.getPropertyValue("border-bottom-color");
    context.fillRect(x(violation) - 3, 0, 6, 8);
}
