import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { canonicalForm } from "leasehold";

import { thrownBy } from "./support.js";
import { type Named, readVectors, shownClaims, type Step } from "./vectors.js";

const form = (claim: Named): string => `${claim.bucketType} ${canonicalForm(claim.bucketType, claim.value)}`;

/** The positions and codes of the creates that an answer says to be of no allowed value, and those that are. */
function refusals(step: Step): { expected: [number, string][]; refused: [number, string][] } {
    const offences = step.answer.matchAll(/create_records\[(\d+)\] \w+ (VALUE_NOT_ALLOWED)/gu);
    const expected = [...offences].map(([, at, code = ""]): [number, string] => [Number(at), code]);
    const refused = step.claims.flatMap((claim, at): [number, string][] => {
        try {
            form(claim);
            return [];
        } catch {
            return [[at, thrownBy(() => form(claim)).code]];
        }
    });
    return { expected, refused };
}

/** Holds a step's values to what was answered; `held` are the forms of those that were created. */
function check(step: Step, held: Set<string>): void {
    const rejected = /^rejected (\w+)/u.exec(step.answer)?.[1];
    if (rejected === "VALUE_NOT_ALLOWED" || rejected === "INVALID_UPDATE") {
        const { expected, refused } = refusals(step);
        assert.equal(refused[0]?.[1], rejected);
        if (step.verb === "begin") assert.deepEqual(refused, expected);
    } else if (rejected !== undefined) {
        assert.ok(["CLAIM_BUSY", "CLAIM_TAKEN"].includes(rejected), rejected);
        assert.deepEqual(step.claims.map(form).filter((one) => !held.has(one)), []);
    } else if (step.answer.startsWith("begun")) {
        const creates = step.claims.filter((claim) => claim.list === "create").map(form);
        assert.equal(new Set([...held, ...creates]).size, held.size + creates.length, "one is held, or there twice");
        creates.forEach((one) => held.add(one));
    } else if (step.answer.startsWith("cell")) {
        assert.deepEqual(shownClaims(step.answer).map(form), step.claims.map(form));
    }
}

describe("canonical forms are those of the golden vectors", () => {
    for (const { heading, steps } of readVectors("canonical_forms")) {
        it(heading, () => {
            const held = new Set<string>();
            steps.forEach((step) => check(step, held));
        });
    }
});

describe("a value", () => {
    it("has a canonical form (B12)", () => {
        assert.equal(canonicalForm(4, "Alice"), "alice");
        assert.equal(canonicalForm(4, "ＧＲÖSSE"), "grösse");
    });

    it("is refused with the engine's code", () => {
        const error = thrownBy(() => canonicalForm(4, "two words"));
        assert.deepEqual([error.name, error.code, error.details], ["LeaseholdError", "VALUE_NOT_ALLOWED", []]);
        assert.match(error.message, /white space/u);
        assert.match(error.stack ?? "", /canonical_forms\.test/u);
        assert.equal(thrownBy(() => canonicalForm(99, "x")).code, "INVALID_UPDATE");
    });
});
