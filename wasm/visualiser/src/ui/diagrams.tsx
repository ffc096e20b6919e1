import { transitionTables } from "leasehold/simulation";

import { type Diagram, labelOf, layOut, type PlacedEdge } from "../model/diagram";
import type { FiredView } from "../model/protocol";
import { leaseLabel, stateName } from "../model/texts";
import { kindOf, type WorldKind } from "../model/world_form";
import { session } from "../session/app";
import { displayed } from "./notice";

const TABLES = transitionTables();
const MACHINES: { machine: FiredView["machine"]; title: string; diagram: Diagram }[] = [
    { machine: "claim", title: "A claim", diagram: layOut(TABLES.claim) },
    { machine: "lease", title: "A lease", diagram: layOut(TABLES.lease) },
    { machine: "session", title: "A session", diagram: layOut(TABLES.session) },
    { machine: "lock", title: "A lock", diagram: layOut(TABLES.lock) },
    { machine: "request", title: "A request", diagram: layOut(TABLES.request) },
];

const SHOWN_MACHINES: Record<WorldKind, FiredView["machine"][]> = { claims: ["claim", "lease"], locks: ["session", "lock"], queues: ["request", "session"] };

/** Returns the present states of all claims, leases and so on. Without any, the initial state is present. */
function presentStates(machine: FiredView["machine"]): ReadonlySet<string> {
    const { view, position } = displayed.value;
    const leases = session.recording.value?.leases(position) ?? view?.leases;
    const all = { claim: view?.claims, lease: leases, session: view?.locks?.sessions, lock: view?.locks?.locks, request: view?.locks?.requests }[machine] ?? [];
    return new Set(all.length === 0 ? ["Absent"] : all.map(({ status }) => status));
}

/**
 * Shows the transition diagrams of claims and leases, or of sessions with locks or requests, made of the engine's tables. The present
 * states are lit, and the transitions of the last event are highlighted.
 */
export function Diagrams() {
    const fired = displayed.value.entry?.fired ?? [];
    // An audit log contains only leases, so the diagram of claims is left out.
    const machines = session.recording.value ? ["lease"] : SHOWN_MACHINES[kindOf(session.settings.value)];
    const shown = MACHINES.filter(({ machine }) => machines.includes(machine));
    return (
        <div class="diagrams">
            {shown.map(({ machine, title, diagram }) => (
                <Machine key={machine} title={title} diagram={diagram} present={presentStates(machine)} fired={fired.filter((one) => one.machine === machine)} />
            ))}
        </div>
    );
}

function transitionText(fired: FiredView): string {
    const subject = fired.machine === "lease" ? `lease ${leaseLabel(fired.of)}` : fired.machine === "session" ? "session" : fired.machine === "request" ? `request ${fired.of}` : fired.of;
    const illegal = fired.edge === undefined ? " (not in the engine's table: a rule is off)" : "";
    return `${subject}: ${stateName(fired.from)} → ${stateName(fired.to)}${illegal}`;
}

interface MachineProps {
    title: string;
    diagram: Diagram;
    present: ReadonlySet<string>;
    /** The transitions of the last event. */
    fired: FiredView[];
}

function Machine({ title, diagram, present, fired }: MachineProps) {
    const firedEdges = new Set(fired.map(({ edge }) => edge));
    const reached = new Set(fired.map(({ to }) => to));
    const text = fired.map(transitionText).join("; ");
    const now = [...present].map(stateName).join(", ");
    return (
        <figure class="machine">
            <figcaption>
                <b>{title}</b> <span>{text}</span>
            </figcaption>
            <svg viewBox={`0 0 ${diagram.width} ${diagram.height}`} role="img" aria-label={`${title}'s states. Now: ${now}. ${text || "The last event changed none"}`}>
                <defs>
                    {["edge-tip", "fired-tip"].map((id) => (
                        <marker key={id} id={id} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                            <path d="M0 0L8 4L0 8z" />
                        </marker>
                    ))}
                </defs>
                {diagram.edges.map((edge, index) => (
                    <Curve key={edge.path} edge={edge} isFired={firedEdges.has(index)} />
                ))}
                {diagram.states.map(({ name, x, y }) => (
                    <g key={name} class={`node${present.has(name) ? " present" : ""}${reached.has(name) ? " reached" : ""}`}>
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

function Curve({ edge, isFired }: { edge: PlacedEdge; isFired: boolean }) {
    return (
        <g class={isFired ? "edge fired" : "edge"}>
            <path d={edge.path} marker-end={isFired ? "url(#fired-tip)" : "url(#edge-tip)"} />
            <text x={edge.labelX} y={edge.labelY + 3}>
                {labelOf(edge.edge)}
            </text>
        </g>
    );
}
