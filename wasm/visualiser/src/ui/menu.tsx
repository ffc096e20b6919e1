import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import type { Action, ActionGroup } from "../model/menu_entries";
import { session } from "../session/app";

/** A menu entry that runs an action of the page, unless it has a reason for which it cannot. */
interface Extra extends Pick<Action, "label" | "reason" | "hint"> {
    run: () => void;
}

/** A menu of events, and the page's element beside which the menu is shown. */
interface Menu {
    title: string;
    about?: string;
    groups: ActionGroup[];
    /** Menu entries at the end of the first group that are not single events of the world. */
    extras?: Extra[] | undefined;
    anchor: HTMLElement;
}

export const openedMenu = signal<Menu | undefined>(undefined);

/** Pauses playback and shows a menu. */
export function openMenu(menu: Menu): void {
    session.pause();
    openedMenu.value = menu;
}

/** Closes the open menu. The element that opened the menu gets the focus back. */
export function closeMenu(): void {
    const menu = openedMenu.peek();
    openedMenu.value = undefined;
    menu?.anchor.focus({ preventScroll: true });
}

/** Shows the open menu above the rest of the page. */
export function MenuLayer() {
    const menu = openedMenu.value;
    return menu ? <MenuBox key={menu.title} menu={menu} /> : null;
}

function MenuBox({ menu }: { menu: Menu }) {
    const box = useRef<HTMLDivElement>(null);
    useLayoutEffect(() => {
        if (box.current) place(box.current, menu.anchor);
        items(box.current)[0]?.focus({ preventScroll: true });
    }, [menu]);
    useEffect(() => {
        const closeOutside = (event: PointerEvent) => {
            if (event.target instanceof Node && !box.current?.contains(event.target)) openedMenu.value = undefined;
        };
        addEventListener("pointerdown", closeOutside);
        return () => removeEventListener("pointerdown", closeOutside);
    }, []);
    return (
        <div class="menu" role="menu" aria-label={menu.title} ref={box} onKeyDown={onMenuKey}>
            <div class="menu-title">{menu.title}</div>
            {menu.about && <p class="menu-about">{menu.about}</p>}
            {menu.groups.map((group, index) => (
                <div role="group" aria-label={group.title} key={group.title}>
                    {group.title !== menu.title && <div class="menu-group">{group.title}</div>}
                    {group.actions.map((action) => (
                        <Item key={action.label} {...action} run={() => session.applyEvent(action.event)} />
                    ))}
                    {index === 0 && <Extras extras={menu.extras} />}
                </div>
            ))}
            {menu.groups.length === 0 && <Extras extras={menu.extras} />}
        </div>
    );
}

function Extras({ extras }: Pick<Menu, "extras">) {
    return <>{extras?.map((extra) => <Item key={extra.label} {...extra} />)}</>;
}

function Item({ label, reason, hint, isFault, run }: Extra & Pick<Action, "isFault">) {
    const isPossible = reason === undefined;
    return (
        <button
            type="button"
            role="menuitem"
            class={isFault ? "item fault" : "item"}
            aria-disabled={!isPossible}
            onClick={() => isPossible && choose(run)}
        >
            {label}
            {(reason ?? hint) && <small>{reason ?? hint}</small>}
        </button>
    );
}

function choose(run: () => void): void {
    // Close the menu first, which returns the focus to the element that opened it. If the chosen
    // action removes this element, the action then moves the focus itself.
    closeMenu();
    run();
}

function items(box: HTMLElement | null): HTMLElement[] {
    return [...(box?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
}

/** Handles a key in the open menu (ARIA Authoring Practices, menu button pattern). */
function onMenuKey(event: KeyboardEvent): void {
    const all = items(event.currentTarget as HTMLElement);
    const focused = all.findIndex((item) => item === document.activeElement);
    const targets: Record<string, number> = { ArrowDown: focused + 1, ArrowUp: focused - 1 + all.length, Home: 0, End: all.length - 1 };
    const target = targets[event.key];
    if (target !== undefined) {
        event.preventDefault();
        event.stopPropagation();
        all[target % all.length]?.focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
        event.preventDefault();
        event.stopPropagation();
        closeMenu();
    }
}

/** The margin around an open menu, in pixels. */
const MARGIN = 8;

/**
 * Places a menu below or above its anchor, where there is more room. The menu never covers the
 * playback controls. On a phone it covers the advice only if it does not fit otherwise.
 */
function place(box: HTMLElement, anchor: HTMLElement): void {
    const target = anchor.getBoundingClientRect();
    const floor = Math.min(edgeOf(".transport")?.top ?? innerHeight, innerHeight);
    const room = (highest: number) => [target.top - highest - 2 * MARGIN, floor - target.bottom - 2 * MARGIN];
    const [least = 0] = [edgeOf(".phone-advice")?.bottom ?? 0, 0].filter((highest) => box.offsetHeight <= Math.max(...room(highest)));
    const [above = 0, below = 0] = room(least);
    const isBelow = box.offsetHeight <= below || below >= above;
    box.style.maxHeight = `${Math.max(above, below)}px`;
    const top = isBelow ? target.bottom + MARGIN : target.top - MARGIN - box.offsetHeight;
    box.style.left = `${Math.max(MARGIN, Math.min(target.left, innerWidth - box.offsetWidth - MARGIN))}px`;
    box.style.top = `${Math.max(MARGIN, top)}px`;
}

/** Returns the edges of an element in pixels, or `undefined` if it is not displayed. */
function edgeOf(selector: string): DOMRect | undefined {
    const box = document.querySelector(selector)?.getBoundingClientRect();
    return box && box.height > 0 ? box : undefined;
}
