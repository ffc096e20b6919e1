import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { checkBatch, type Claim, encodeSourceId } from "leasehold";

import { sourceId, thrownBy, username } from "./support.js";

describe("checkBatch", () => {
    it("accepts a replace, and a destroy without subject and source (B06)", () => {
        checkBatch([username("alice")], [username("ALICE")]);
        checkBatch([], [{ bucket_type: 4, bucket_value: "bob" }]);
    });

    it("throws INVALID_UPDATE with every rejected claim, and shows no value (B07, B10, B12, B14)", () => {
        const creates = [username("a"), username("a b"), username("A")];
        const error = thrownBy(() => checkBatch(creates, [username(" ")]));
        assert.equal(error.code, "INVALID_UPDATE");
        const details = error.details.map(({ list, position, bucket_type, code }) => [list, position, bucket_type, code]);
        assert.deepEqual(details, [
            ["creates", 1, 4, "VALUE_NOT_ALLOWED"],
            ["creates", 2, 4, "INVALID_UPDATE"],
            ["destroys", 0, 4, "VALUE_NOT_ALLOWED"],
        ]);
        assert.ok(!`${error.message}${JSON.stringify(error.details)}`.includes("a b"), "the error shows a value");
        assert.deepEqual(thrownBy(() => checkBatch([], [])).details, []);
    });

    it("accepts subject ids up to 2^63 - 1 and refuses larger ones", () => {
        const largest = 2n ** 63n - 1n;
        checkBatch([username("alice", largest)], []);
        const beyond: Claim = { ...username("alice"), subject: { subject_type: 4, id: 2n ** 63n } };
        assert.equal(thrownBy(() => checkBatch([beyond], [])).code, "INVALID_ARGUMENT");
    });

    it("accepts 2000 claims and refuses 2001 (B11)", () => {
        const claims = Array.from({ length: 2001 }, (_, at) => username(`name-${at}`));
        checkBatch(claims.slice(1), []);
        assert.equal(thrownBy(() => checkBatch(claims, [])).code, "LIMIT_EXCEEDED");
    });
});

describe("encodeSourceId", () => {
    it("encodes integers as 8 bytes, big-endian, so that ids sort as keys do", () => {
        const keys = [0n, 1n, 255n, 256n, 65_536n, 2n ** 63n - 1n];
        assert.deepEqual(keys.map(encodeSourceId), keys.map(sourceId));
    });

    it("encodes a UUID as its 16 bytes and other text as UTF-8", () => {
        assert.equal(encodeSourceId("01a1fefb-0383-7360-95c3-3b4e0d5dfab0").length, 16);
        assert.deepEqual(encodeSourceId("größe"), new TextEncoder().encode("größe"));
    });

    it("refuses keys that are negative, empty, too long or beyond 63 bits", () => {
        assert.equal(thrownBy(() => encodeSourceId(-1n)).code, "INVALID_UPDATE");
        assert.equal(thrownBy(() => encodeSourceId("")).code, "INVALID_UPDATE");
        assert.equal(thrownBy(() => encodeSourceId("x".repeat(129))).code, "LIMIT_EXCEEDED");
        assert.equal(thrownBy(() => encodeSourceId(2n ** 63n)).code, "INVALID_ARGUMENT");
    });
});
