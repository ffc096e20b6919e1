import { useLayoutEffect, useRef } from "preact/hooks";

import { messageActions } from "../model/actions";
import { isUnderWay, lineOf, pointAt } from "../model/geometry";
import type { Arrow, MessageId, MessageView } from "../model/protocol";
import { processName } from "../model/words";
import { session } from "../session/app";
import { lanesLeft, layout, rowHeight } from "./lanes";
import { openMenu } from "./menu";

const GAP = 26;

interface Bubble {
    message: MessageView;
    arrow: Arrow;
    x: number;
}

/** The messages under way at the position: buttons on their arrows. */
export function Bubbles() {
    const position = session.position.value;
    const top = position * rowHeight.value;
    const bubbles = placed(position);
    const focused = useRef<MessageId | undefined>(undefined);
    useLayoutEffect(() => {
        if (focused.current === undefined || bubbles.some(({ message }) => message.id === focused.current)) return;
        focused.current = undefined;
        if (document.activeElement === document.body) successor(position)?.focus({ preventScroll: true });
    });
    return (
        <>
            {bubbles.map(({ message, x }) => (
                <BubbleButton key={message.id} message={message} x={x + lanesLeft.value} y={top} focused={focused} />
            ))}
        </>
    );
}

/** What has the focus after a message that had it is gone: what was sent in its place, any other message, or the lanes. */
function successor(position: number): HTMLElement | null {
    const [sent] = session.simulation.peek()?.entries(Math.max(0, position - 1), position)[0]?.sent ?? [];
    const next = sent && document.querySelector<HTMLElement>(`.bubble[data-id="${sent.id}"]`);
    return next ?? document.querySelector<HTMLElement>(".bubble") ?? document.querySelector<HTMLElement>(".lanes");
}

function placed(position: number): Bubble[] {
    const view = session.view.value;
    const simulation = session.simulation.value;
    if (!view || !simulation) return [];
    const arrows = simulation.arrows(Math.max(0, position - 1), position + 1).filter((arrow) => isUnderWay(arrow, position));
    const place = layout.value;
    const bubbles = view.messages.flatMap((message): Bubble[] => {
        const arrow = arrows.find(({ id }) => id === message.id);
        if (!arrow) return [];
        const line = lineOf(arrow, place, rowHeight.value, session.length.value);
        return [{ message, arrow, x: pointAt(line, position * rowHeight.value).x }];
    });
    bubbles.sort((one, other) => one.x - other.x);
    // Side by side where they would cover each other.
    bubbles.forEach((bubble, at) => {
        const before = bubbles[at - 1];
        if (before && bubble.x - before.x < GAP) bubble.x = before.x + GAP;
    });
    return bubbles;
}

function nameOf(message: MessageView): string {
    const caller = `cell ${message.cell}'s ${processName(message.process)}`;
    return message.is_answer ? `answer to ${caller}` : `request of ${caller}`;
}

interface BubbleProps {
    message: MessageView;
    x: number;
    y: number;
    /** Which message has the focus. */
    focused: { current: MessageId | undefined };
}

function BubbleButton({ message, x, y, focused }: BubbleProps) {
    const name = nameOf(message);
    return (
        <button
            type="button"
            class={message.is_answer ? "bubble answer" : "bubble"}
            style={{ left: `${x}px`, top: `${y}px` }}
            aria-haspopup="menu"
            aria-label={`${name}, under way: ${message.says}. Choose what happens to it`}
            title={`${name}: ${message.says}`}
            data-message={message.says}
            data-id={message.id}
            onFocus={() => (focused.current = message.id)}
            onBlur={(event) => {
                // Also said of a message that is gone, which leaves the focus to its successor; and of one whose menu opens.
                if (event.relatedTarget !== null && !isInMenu(event.relatedTarget)) focused.current = undefined;
            }}
            onClick={(event) => open(message, event.currentTarget)}
        >
            <svg viewBox="0 0 20 14" width="20" height="14" aria-hidden="true">
                <rect x="1" y="1" width="18" height="12" rx="2" />
                <path d="M1.5 2l8.5 6 8.5-6" />
            </svg>
        </button>
    );
}

function isInMenu(target: EventTarget): boolean {
    return target instanceof Element && target.closest(".menu") !== null;
}

function open(message: MessageView, anchor: HTMLElement): void {
    const [simulation, view] = [session.simulation.peek(), session.view.peek()];
    if (!simulation || !view) return;
    const name = nameOf(message);
    openMenu({
        title: `“${message.says}”`,
        about: `An ${name} that is under way.`.replace("An request", "A request"),
        groups: [{ title: "Let the network", actions: messageActions(message, view, simulation.possible()) }],
        extras: [{ label: "Delay it: something else happens first", act: () => session.delay(message.id) }],
        anchor,
    });
}
