import { transitionTables } from "leasehold/simulation";

import { type Diagram, layOut, type PlacedEdge } from "../model/diagram";
import type { FiredView } from "../model/protocol";
import { leaseNumber, stateName } from "../model/words";
import { session } from "../session/app";
import { reading } from "./notice";

const TABLES = transitionTables();
const MACHINES: { machine: FiredView["machine"]; title: string; diagram: Diagram }[] = [
    { machine: "claim", title: "A claim", diagram: layOut(TABLES.claim) },
    { machine: "lease", title: "A lease", diagram: layOut(TABLES.lease) },
];

/** The service's two machines, drawn from the engine's own tables, with what has just fired lit. */
export function Diagrams() {
    const fired = reading.value.entry?.fired ?? [];
    // A log tells of leases alone.
    const shown = session.recording.value ? MACHINES.filter(({ machine }) => machine === "lease") : MACHINES;
    return (
        <div class="diagrams">
            {shown.map(({ machine, title, diagram }) => (
                <Machine key={machine} title={title} diagram={diagram} fired={fired.filter((one) => one.machine === machine)} />
            ))}
        </div>
    );
}

function inWords(fired: FiredView): string {
    const of = fired.machine === "lease" ? `lease ${leaseNumber(fired.of)}` : fired.of;
    const lawless = fired.edge === undefined ? " (the engine's table has no such edge: a rule is off)" : "";
    return `${of}: ${stateName(fired.from)} → ${stateName(fired.to)}${lawless}`;
}

function Machine({ title, diagram, fired }: { title: string; diagram: Diagram; fired: FiredView[] }) {
    const lit = new Set(fired.map(({ edge }) => edge));
    const reached = new Set(fired.map(({ to }) => to));
    const words = fired.map(inWords).join("; ");
    return (
        <figure class="machine">
            <figcaption>
                <b>{title}</b> <span>{words}</span>
            </figcaption>
            <svg viewBox={`0 0 ${diagram.width} ${diagram.height}`} role="img" aria-label={`${title}'s states. ${words || "nothing has just moved"}`}>
                <defs>
                    {["edge-tip", "lit-tip"].map((id) => (
                        <marker key={id} id={id} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                            <path d="M0 0L8 4L0 8z" />
                        </marker>
                    ))}
                </defs>
                {diagram.edges.map((edge, at) => (
                    <Curve key={edge.path} edge={edge} isLit={lit.has(at)} />
                ))}
                {diagram.states.map(({ name, x, y }) => (
                    <g key={name} class={reached.has(name) ? "node reached" : "node"}>
                        <rect x={x - 43} y={y - 13} width="86" height="26" rx="13" />
                        <text x={x} y={y + 4}>
                            {stateName(name)}
                        </text>
                    </g>
                ))}
            </svg>
        </figure>
    );
}

function Curve({ edge, isLit }: { edge: PlacedEdge; isLit: boolean }) {
    return (
        <g class={isLit ? "edge lit" : "edge"}>
            <path d={edge.path} marker-end={isLit ? "url(#lit-tip)" : "url(#edge-tip)"} />
            <text x={edge.labelX} y={edge.labelY + 3}>
                {stateName(edge.edge.event).replace("begin ", "")}
            </text>
        </g>
    );
}
