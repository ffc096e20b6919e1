// Computes the layout of a transition table's diagram. States are in layers from top to bottom, by
// their distance from the initial state.
import type { Edge } from "./protocol";
import { stateName } from "./texts";

/** A state of the diagram, with the position of its centre. */
export interface PlacedState {
    name: string;
    /** The number of edges on the shortest path from the initial state. */
    layer: number;
    x: number;
    y: number;
}

/** An edge of the diagram, with its curve and the position of its label. */
export interface PlacedEdge {
    edge: Edge;
    path: string;
    labelX: number;
    labelY: number;
}

/** The layout of a diagram: its states, its edges, and its size in the units of the coordinates. */
export interface Diagram {
    states: PlacedState[];
    edges: PlacedEdge[];
    width: number;
    height: number;
}

interface Point {
    x: number;
    y: number;
}

const WIDTH = 340;
const STATE_SPACING = 196;
/** The distance between three or more states of a layer. */
const NARROW_SPACING = 122;
const LAYER_SPACING = 74;
const MARGIN = 20;
const STATE_HALF_WIDTH = 43;
const STATE_HALF_HEIGHT = 13;

/**
 * Returns the layout of a transition table's diagram. The first edge must start at the initial
 * state.
 */
export function layOut(edges: readonly Edge[]): Diagram {
    const layers = layersByDistance(edges);
    const states = layers.flatMap((names, layer) =>
        names.map((name, index) => ({
            name,
            layer,
            x: WIDTH / 2 + (index - (names.length - 1) / 2) * (names.length > 2 ? NARROW_SPACING : STATE_SPACING),
            y: MARGIN + layer * LAYER_SPACING,
        })),
    );
    const byName = new Map(states.map((state) => [state.name, state]));
    const curves = edges.flatMap((edge, index) => {
        const [from, to] = [byName.get(edge.from), byName.get(edge.to)];
        return from && to ? [curve(edge, from, to, parallelRank(edges, index))] : [];
    });
    const height = MARGIN * 2 + (layers.length - 1) * LAYER_SPACING;
    return { states, edges: placeLabels(curves, states, height), width: WIDTH, height };
}

/** An edge with its curve, and the points at which its label may be, the best one first. */
interface Curve {
    edge: Edge;
    path: string;
    places: Point[];
}

/** The width of a letter, and the height of a label, in the units of the coordinates. */
const [LETTER_WIDTH, LABEL_HEIGHT] = [6.2, 13];

/** Returns the text of an edge's label. */
export function labelOf(edge: Edge): string {
    return stateName(edge.event).replace("begin ", "");
}

/** Returns true if two boxes with these centres and sizes overlap. */
function overlap(one: Point, other: Point, width: number, height: number): boolean {
    return Math.abs(one.x - other.x) < width && Math.abs(one.y - other.y) < height;
}

/** Places the label of each edge at the first point where it covers no state and no earlier label. */
function placeLabels(curves: readonly Curve[], states: readonly PlacedState[], height: number): PlacedEdge[] {
    const labels: (Point & { half: number })[] = [];
    return curves.map(({ edge, path, places }) => {
        const half = (labelOf(edge).length * LETTER_WIDTH) / 2;
        const isFree = (place: Point) =>
            place.x - half >= 0 && place.x + half <= WIDTH && place.y >= LABEL_HEIGHT / 2 && place.y <= height - LABEL_HEIGHT / 2 &&
            states.every((state) => !overlap(place, state, half + STATE_HALF_WIDTH, LABEL_HEIGHT / 2 + STATE_HALF_HEIGHT)) &&
            labels.every((label) => !overlap(place, label, half + label.half, LABEL_HEIGHT));
        const place = places.find(isFree) ?? places[0] ?? { x: 0, y: 0 };
        labels.push({ ...place, half });
        return { edge, path, labelX: place.x, labelY: place.y };
    });
}

function layersByDistance(edges: readonly Edge[]): string[][] {
    const initial = edges[0]?.from;
    const layers: string[][] = initial === undefined ? [] : [[initial]];
    const known = new Set(layers.flat());
    for (let index = 0; index < layers.length; index += 1) {
        const layer = layers[index] ?? [];
        const next = edges.filter(({ from, to }) => layer.includes(from) && !known.has(to)).map(({ to }) => to);
        const names = [...new Set(next)];
        for (const name of names) known.add(name);
        if (names.length > 0) layers.push(names);
    }
    return layers;
}

/**
 * Returns how many earlier edges have the same start and end. An edge with a higher rank bends
 * more, so that parallel edges do not overlap.
 */
function parallelRank(edges: readonly Edge[], index: number): number {
    const edge = edges[index];
    return edges.slice(0, index).filter((other) => other.from === edge?.from && other.to === edge.to).length;
}

/** Returns an edge from a state to itself: a loop at the right of the state. */
function loop(edge: Edge, { x, y }: PlacedState): Curve {
    const right = x + STATE_HALF_WIDTH;
    const path = `M${coordinates({ x: right - 8, y: y - STATE_HALF_HEIGHT })}C${coordinates({ x: right + 26, y: y - 34 })} ${coordinates({ x: right + 34, y: y + 12 })} ${coordinates({ x: right, y })}`;
    const places = [-16, -22, 14, -28].flatMap((rise) => [34, 28, 44, 54].map((shift) => ({ x: right + shift, y: y + rise })));
    return { edge, path, places };
}

/** The shares of a curve at which its label may be, the best one first. */
const LABEL_SHARES = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82];

function curve(edge: Edge, from: PlacedState, to: PlacedState, rank: number): Curve {
    if (from === to) return loop(edge, from);
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const length = Math.hypot(dx, dy) || 1;
    const skipsLayer = Math.abs(from.layer - to.layer) > 1;
    // An edge between neighbouring layers bends to its left, so an edge and its reverse do not
    // overlap. An edge that skips layers bends outwards, around the states between its ends.
    const side = skipsLayer && from.x > WIDTH / 2 ? -1 : 1;
    const bend = side * (skipsLayer ? length * 0.62 : (dx === 0 ? 62 : 30) + rank * 46);
    const control = { x: (from.x + to.x) / 2 + (dy / length) * bend, y: (from.y + to.y) / 2 - (dx / length) * bend };
    const [start, end] = [borderPoint(from, control), borderPoint(to, control)];
    const at = (share: number, axis: "x" | "y") => (1 - share) ** 2 * start[axis] + 2 * share * (1 - share) * control[axis] + share ** 2 * end[axis];
    const onCurve = LABEL_SHARES.map((share) => ({ x: at(share, "x"), y: at(share, "y") }));
    const above = onCurve.map(({ x, y }) => ({ x, y: y - 12 }));
    const beside = [12, -12, 24, -24, 40, -40].flatMap((shift) => onCurve.map(({ x, y }) => ({ x: x + shift, y })));
    return { edge, path: `M${coordinates(start)}Q${coordinates(control)} ${coordinates(end)}`, places: [...onCurve, ...above, ...beside] };
}

function coordinates({ x, y }: Point): string {
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
}

/**
 * Returns the point at which the border of a state crosses the line from the state's centre to
 * `target`.
 */
function borderPoint(state: PlacedState, target: Point): Point {
    const [dx, dy] = [target.x - state.x, target.y - state.y];
    const share = Math.min(STATE_HALF_WIDTH / Math.max(Math.abs(dx), 0.1), STATE_HALF_HEIGHT / Math.max(Math.abs(dy), 0.1));
    return { x: state.x + dx * Math.min(1, share), y: state.y + dy * Math.min(1, share) };
}
