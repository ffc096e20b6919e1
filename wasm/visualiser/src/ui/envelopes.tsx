import { useLayoutEffect, useRef } from "preact/hooks";

import { messageActions } from "../model/actions";
import { isInFlight, messageLine, pointAt } from "../model/geometry";
import { plainText } from "../model/message_texts";
import type { Arrow, MessageId, MessageView } from "../model/protocol";
import { processName } from "../model/texts";
import { session } from "../session/app";
import { lanesLeft, layout, rows } from "./lane_layout";
import { openMenu } from "./menu";

/** The least distance between two envelopes, in pixels. Closer ones would cover each other. */
const MIN_DISTANCE = 26;

/** A message in flight, with the horizontal position of its envelope in pixels. */
interface PlacedMessage {
    message: MessageView;
    arrow: Arrow;
    x: number;
}

/** Shows the messages in flight at the position, as buttons on their lines. */
export function Envelopes() {
    const position = session.position.value;
    const top = rows.value.top(position);
    const envelopes = placeMessages(position);
    const focused = useRef<MessageId | undefined>(undefined);
    useLayoutEffect(() => {
        if (focused.current === undefined || envelopes.some(({ message }) => message.id === focused.current)) return;
        focused.current = undefined;
        if (document.activeElement === document.body) focusSuccessor(position)?.focus({ preventScroll: true });
    });
    return (
        <>
            {envelopes.map(({ message, arrow, x }) => (
                <EnvelopeButton key={message.id} message={message} isRefusal={arrow.refused ?? false} x={x + lanesLeft.value} y={top} focused={focused} />
            ))}
        </>
    );
}

/**
 * Returns the element that gets the focus after the focused message has gone: the message that was
 * sent in its place, any other message, or the lanes.
 */
function focusSuccessor(position: number): HTMLElement | null {
    const [sent] = session.simulation.peek()?.entries(Math.max(0, position - 1), position)[0]?.sent ?? [];
    const next = sent && document.querySelector<HTMLElement>(`.envelope[data-id="${sent.id}"]`);
    return next ?? document.querySelector<HTMLElement>(".envelope") ?? document.querySelector<HTMLElement>(".lanes");
}

function placeMessages(position: number): PlacedMessage[] {
    const view = session.view.value;
    const simulation = session.simulation.value;
    if (!view || !simulation) return [];
    const arrows = simulation.arrows(Math.max(0, position - 1), position + 1).filter((arrow) => isInFlight(arrow, position));
    const envelopes = view.messages.flatMap((message): PlacedMessage[] => {
        const arrow = arrows.find(({ id }) => id === message.id);
        if (!arrow) return [];
        const line = messageLine(arrow, layout.value, rows.value);
        return [{ message, arrow, x: pointAt(line, rows.value.top(position)).x }];
    });
    envelopes.sort((left, right) => left.x - right.x);
    envelopes.forEach((envelope, index) => {
        const before = envelopes[index - 1];
        if (before && envelope.x - before.x < MIN_DISTANCE) envelope.x = before.x + MIN_DISTANCE;
    });
    return envelopes;
}

function nameOf(message: MessageView): string {
    const caller = `cell ${message.cell}'s ${processName(message.process)}`;
    return message.is_answer ? `answer to ${caller}` : `request of ${caller}`;
}

interface BubbleProps {
    message: MessageView;
    /** True if the message refuses its request. */
    isRefusal: boolean;
    x: number;
    y: number;
    /** The id of the message whose envelope has the focus. */
    focused: { current: MessageId | undefined };
}

function EnvelopeButton({ message, isRefusal, x, y, focused }: BubbleProps) {
    const name = nameOf(message);
    return (
        <button
            type="button"
            class={`envelope${message.is_answer ? " answer" : ""}${isRefusal ? " refused" : ""}`}
            style={{ translate: `${x}px ${y}px` }}
            aria-haspopup="menu"
            aria-label={`${name}, in flight: ${plainText(message.says)}. Open its menu`}
            title={`${name}: ${plainText(message.says)}`}
            data-message={message.says}
            data-id={message.id}
            onFocus={() => (focused.current = message.id)}
            onBlur={(event) => {
                // A blur without a new target happens for example when the message is removed;
                // `focused` must then be kept, so that a successor can get the focus. A blur into
                // the menu is temporary.
                if (event.relatedTarget !== null && !isInMenu(event.relatedTarget)) focused.current = undefined;
            }}
            onClick={(event) => openMessageMenu(message, event.currentTarget)}
        >
            <svg viewBox="0 0 20 14" width="20" height="14" aria-hidden="true">
                <rect x="1" y="1" width="18" height="12" rx="2" />
                <path d={isRefusal ? "M4.5 7h11" : "M1.5 2l8.5 6 8.5-6"} />
            </svg>
        </button>
    );
}

function isInMenu(target: EventTarget): boolean {
    return target instanceof Element && target.closest(".menu") !== null;
}

function openMessageMenu(message: MessageView, anchor: HTMLElement): void {
    const [simulation, view] = [session.simulation.peek(), session.view.peek()];
    if (!simulation || !view) return;
    const name = nameOf(message);
    openMenu({
        title: `“${plainText(message.says)}”`,
        about: `${message.is_answer ? "An" : "A"} ${name}, in flight.`,
        groups: [{ title: "The network", actions: messageActions(message, view, simulation.possible()) }],
        extras: [{ label: "Delay it: another event happens first", run: () => session.delay(message.id) }],
        anchor,
    });
}
