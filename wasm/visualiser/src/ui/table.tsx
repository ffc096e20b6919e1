import type { ComponentChildren } from "preact";

import { stateName } from "../model/texts";
import { litClass } from "./tour";

interface TableProps {
    caption: string;
    heads: string[];
    empty: string;
    /** The name of the table for the tour, which may point at it. */
    place?: string;
    children: ComponentChildren[];
}

/** Shows a table with a caption, or a text in place of its rows. */
export function Table({ caption, heads, empty, place, children }: TableProps) {
    return (
        <table class={place && litClass(`table ${place}`)}>
            <caption>{caption}</caption>
            {children.length > 0 && (
                <thead>
                    <tr>
                        {heads.map((head) => (
                            <th key={head} scope="col">
                                {head}
                            </th>
                        ))}
                    </tr>
                </thead>
            )}
            <tbody>
                {children.length > 0 ? (
                    children
                ) : (
                    <tr>
                        <td class="empty">{empty}</td>
                    </tr>
                )}
            </tbody>
        </table>
    );
}

/** Shows a state as a tag. */
export function Status({ status }: { status: string }) {
    return <span class={`tag ${status.toLowerCase()}`}>{stateName(status)}</span>;
}
