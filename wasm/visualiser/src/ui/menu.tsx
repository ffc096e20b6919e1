import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import type { Action, ActionGroup } from "../model/actions";
import { session } from "../session/app";

/** A menu, and where it was asked for. */
interface Menu {
    title: string;
    about?: string;
    groups: ActionGroup[];
    /** Actions that are no events. */
    extras?: { label: string; act: () => void }[];
    anchor: HTMLElement;
}

export const openedMenu = signal<Menu | undefined>(undefined);

/** Opens a menu beside what was clicked. */
export function openMenu(menu: Menu): void {
    session.pause();
    openedMenu.value = menu;
}

/** Closes the menu, and puts the focus back. */
export function closeMenu(): void {
    const menu = openedMenu.peek();
    openedMenu.value = undefined;
    menu?.anchor.focus({ preventScroll: true });
}

/** Where the opened menu is drawn. */
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
        const outside = (event: PointerEvent) => {
            if (event.target instanceof Node && !box.current?.contains(event.target)) openedMenu.value = undefined;
        };
        addEventListener("pointerdown", outside);
        return () => removeEventListener("pointerdown", outside);
    }, []);
    return (
        <div class="menu" role="menu" aria-label={menu.title} ref={box} onKeyDown={move}>
            <div class="menu-title">{menu.title}</div>
            {menu.about && <p class="menu-about">{menu.about}</p>}
            {menu.groups.map((group) => (
                <div role="group" aria-label={group.title} key={group.title}>
                    {group.title !== menu.title && <div class="menu-group">{group.title}</div>}
                    {group.actions.map((action) => (
                        <Item key={action.label} action={action} />
                    ))}
                </div>
            ))}
            {menu.extras?.map(({ label, act }) => (
                <button type="button" role="menuitem" class="item" key={label} onClick={() => choose(act)}>
                    {label}
                </button>
            ))}
        </div>
    );
}

function Item({ action }: { action: Action }) {
    const isPossible = action.reason === undefined;
    return (
        <button
            type="button"
            role="menuitem"
            class={action.isFault ? "item fault" : "item"}
            aria-disabled={!isPossible}
            onClick={() => isPossible && choose(() => session.bend(action.event))}
        >
            {action.label}
            {(action.reason ?? action.hint) && <small>{action.reason ?? action.hint}</small>}
        </button>
    );
}

function choose(act: () => void): void {
    closeMenu();
    act();
}

function items(box: HTMLElement | null): HTMLElement[] {
    return [...(box?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
}

function move(event: KeyboardEvent): void {
    const all = items(event.currentTarget as HTMLElement);
    const at = all.findIndex((item) => item === document.activeElement);
    const targets: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 };
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

/** Room around a menu. */
const MARGIN = 8;

/** Beside the anchor, above or below it, where there is more room; neither over the buttons of playing nor, if it fits, over what is said of the run. */
function place(box: HTMLElement, anchor: HTMLElement): void {
    const at = anchor.getBoundingClientRect();
    const floor = Math.min(topOf(".transport"), innerHeight);
    const lowest = [Math.min(topOf(".aside"), floor), floor].find((low) => fits(box, at, low)) ?? floor;
    const [above, below] = [at.top - 2 * MARGIN, lowest - at.bottom - 2 * MARGIN];
    const isBelow = box.offsetHeight <= below || below >= above;
    box.style.maxHeight = `${Math.max(above, below)}px`;
    const top = isBelow ? at.bottom + MARGIN : at.top - MARGIN - box.offsetHeight;
    box.style.left = `${Math.max(MARGIN, Math.min(at.left, innerWidth - box.offsetWidth - MARGIN))}px`;
    box.style.top = `${Math.max(MARGIN, top)}px`;
}

function fits(box: HTMLElement, at: DOMRect, lowest: number): boolean {
    return box.offsetHeight <= Math.max(at.top, lowest - at.bottom) - 2 * MARGIN;
}

/** Where something begins that is on the screen; below everything where it is not. */
function topOf(selector: string): number {
    const box = document.querySelector(selector)?.getBoundingClientRect();
    return box && box.height > 0 ? box.top : Number.POSITIVE_INFINITY;
}
