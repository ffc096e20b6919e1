import { transitionTables } from "leasehold/simulation";
import { expect, test } from "vitest";

import { labelOf, layOut } from "../src/model/diagram";

/** The measures of a state and of a label, as they are drawn. */
const [STATE_WIDTH, STATE_HEIGHT, LETTER_WIDTH, LETTER_HEIGHT] = [86, 26, 5.6, 9];

test.each(Object.entries(transitionTables()))("no label of %s lies on a state, on another label or outside", (_, edges) => {
    const { states, edges: placed, width, height } = layOut(edges);
    const labels = placed.map(({ edge, labelX, labelY }) => ({ name: labelOf(edge), x: labelX, y: labelY, width: labelOf(edge).length * LETTER_WIDTH, height: LETTER_HEIGHT }));
    const boxes = states.map(({ name, x, y }) => ({ name, x, y, width: STATE_WIDTH, height: STATE_HEIGHT }));
    const covered = labels.flatMap((label, index) =>
        [...boxes, ...labels.slice(index + 1)]
            .filter((other) => Math.abs(label.x - other.x) < (label.width + other.width) / 2 && Math.abs(label.y - other.y) < (label.height + other.height) / 2)
            .map((other) => `${label.name} on ${other.name}`),
    );
    expect(covered).toEqual([]);
    expect(labels.filter(({ x, y, width: own }) => x - own / 2 < 0 || x + own / 2 > width || y < 0 || y > height)).toEqual([]);
});
