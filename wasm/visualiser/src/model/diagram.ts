// A machine's diagram, laid out from its table of edges: states by how far they are from the first one.
import type { Edge } from "./protocol";

/** A state with its place. */
export interface PlacedState {
    name: string;
    /** How many edges it is away from the first. */
    layer: number;
    x: number;
    y: number;
}

/** An edge with its curve. */
export interface PlacedEdge {
    edge: Edge;
    path: string;
    labelX: number;
    labelY: number;
}

/** A diagram. */
export interface Diagram {
    states: PlacedState[];
    edges: PlacedEdge[];
    width: number;
    height: number;
}

const WIDTH = 340;
const SPREAD = 196;
const LAYER = 74;
const MARGIN = 20;
const HALF_WIDTH = 43;
const HALF_HEIGHT = 13;

/** Lays a table of edges out, from top to bottom. */
export function layOut(edges: readonly Edge[]): Diagram {
    const layers = byDistance(edges);
    const states = layers.flatMap((layer, at) =>
        layer.map((name, place) => ({
            name,
            layer: at,
            x: WIDTH / 2 + (place - (layer.length - 1) / 2) * SPREAD,
            y: MARGIN + at * LAYER,
        })),
    );
    const places = new Map(states.map((state) => [state.name, state]));
    const placed = edges.flatMap((edge, at) => {
        const [from, to] = [places.get(edge.from), places.get(edge.to)];
        return from && to ? [curve(edge, from, to, rank(edges, at))] : [];
    });
    return { states, edges: placed, width: WIDTH, height: MARGIN * 2 + (layers.length - 1) * LAYER };
}

function byDistance(edges: readonly Edge[]): string[][] {
    const first = edges[0]?.from;
    const layers: string[][] = first === undefined ? [] : [[first]];
    const known = new Set(layers.flat());
    for (let at = 0; at < layers.length; at += 1) {
        const here = layers[at] ?? [];
        const next = edges.filter(({ from, to }) => here.includes(from) && !known.has(to)).map(({ to }) => to);
        const names = [...new Set(next)];
        for (const name of names) known.add(name);
        if (names.length > 0) layers.push(names);
    }
    return layers;
}

/** How many edges between the same two states come before this one, in the same direction. */
function rank(edges: readonly Edge[], at: number): number {
    const edge = edges[at];
    return edges.slice(0, at).filter((other) => other.from === edge?.from && other.to === edge.to).length;
}

function curve(edge: Edge, from: PlacedState, to: PlacedState, rank: number): PlacedEdge {
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const length = Math.hypot(dx, dy) || 1;
    const isLong = Math.abs(from.layer - to.layer) > 1;
    // A short edge bends to its left, so that one there and one back never lie on each other; a long one goes around
    // what is between, on the outside.
    const side = isLong && from.x > WIDTH / 2 ? -1 : 1;
    const bend = side * (isLong ? length * 0.62 : (dx === 0 ? 62 : 30) + rank * 46);
    const control = { x: (from.x + to.x) / 2 + (dy / length) * bend, y: (from.y + to.y) / 2 - (dx / length) * bend };
    const [start, end] = [border(from, control), border(to, control)];
    return {
        edge,
        path: `M${at(start)}Q${at(control)} ${at(end)}`,
        labelX: (start.x + 2 * control.x + end.x) / 4,
        labelY: (start.y + 2 * control.y + end.y) / 4,
    };
}

function at({ x, y }: { x: number; y: number }): string {
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
}

/** Where the way from a state's middle to a point leaves the state. */
function border(state: PlacedState, towards: { x: number; y: number }): { x: number; y: number } {
    const [dx, dy] = [towards.x - state.x, towards.y - state.y];
    const share = Math.min(HALF_WIDTH / Math.max(Math.abs(dx), 0.1), HALF_HEIGHT / Math.max(Math.abs(dy), 0.1));
    return { x: state.x + dx * Math.min(1, share), y: state.y + dy * Math.min(1, share) };
}
