import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { canonicalForm } from "leasehold";

import { thrownBy } from "./support.js";
import { type NamedClaim, readVectors, shownClaims, type VectorStep } from "./vectors.js";

const canonical = (claim: NamedClaim): string => `${claim.bucketType} ${canonicalForm(claim.bucketType, claim.value)}`;

/**
 * Returns the position and error code of each claim in a step that has a forbidden value.
 * `expected` has those of the vector's answer; `refused` has those for which `canonicalForm`
 * throws.
 */
function refusals(step: VectorStep): { expected: [number, string][]; refused: [number, string][] } {
    const offences = step.answer.matchAll(/create_records\[(\d+)\] \w+ (VALUE_NOT_ALLOWED)/gu);
    const expected = [...offences].map(([, at, code = ""]): [number, string] => [Number(at), code]);
    const refused = step.claims.flatMap((claim, at): [number, string][] => {
        try {
            canonical(claim);
            return [];
        } catch {
            return [[at, thrownBy(() => canonical(claim)).code]];
        }
    });
    return { expected, refused };
}

/**
 * Compares the canonical forms of a step's claims with the step's expected answer. `held` collects
 * the forms of the claims that the scenario has created.
 */
function check(step: VectorStep, held: Set<string>): void {
    const rejected = /^rejected (\w+)/u.exec(step.answer)?.[1];
    if (rejected === "VALUE_NOT_ALLOWED" || rejected === "INVALID_UPDATE") {
        const { expected, refused } = refusals(step);
        assert.equal(refused[0]?.[1], rejected);
        if (step.verb === "begin") assert.deepEqual(refused, expected);
    } else if (rejected !== undefined) {
        assert.ok(["CLAIM_BUSY", "CLAIM_TAKEN"].includes(rejected), rejected);
        assert.deepEqual(step.claims.map(canonical).filter((form) => !held.has(form)), []);
    } else if (step.answer.startsWith("begun")) {
        const creates = step.claims.filter((claim) => claim.list === "create").map(canonical);
        assert.equal(new Set([...held, ...creates]).size, held.size + creates.length, "a created form is held already, or appears twice");
        creates.forEach((form) => held.add(form));
    } else if (step.answer.startsWith("cell")) {
        assert.deepEqual(shownClaims(step.answer).map(canonical), step.claims.map(canonical));
    }
}

describe("canonicalForm agrees with the golden vectors (B12)", () => {
    for (const { heading, steps } of readVectors("canonical_forms")) {
        it(heading, () => {
            const held = new Set<string>();
            steps.forEach((step) => check(step, held));
        });
    }
});

describe("canonicalForm", () => {
    it("folds case and width (B12)", () => {
        assert.equal(canonicalForm(4, "Alice"), "alice");
        assert.equal(canonicalForm(4, "ＧＲÖSSE"), "grösse");
    });

    it("throws the engine's code for a value that is not allowed and for an unknown type", () => {
        const error = thrownBy(() => canonicalForm(4, "two words"));
        assert.deepEqual([error.name, error.code, error.details], ["LeaseholdError", "VALUE_NOT_ALLOWED", []]);
        assert.match(error.message, /white space/u);
        assert.match(error.stack ?? "", /canonical_forms\.test/u);
        assert.equal(thrownBy(() => canonicalForm(99, "x")).code, "INVALID_UPDATE");
    });
});
