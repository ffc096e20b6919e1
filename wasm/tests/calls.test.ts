import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { checkBatch, type Claim, encodeSourceId } from "leasehold";

import { sourceId, thrownBy, username } from "./support.js";

describe("a batch", () => {
    it("passes where it can be begun (B06)", () => {
        checkBatch([username("alice")], [username("ALICE")]);
        checkBatch([], [{ bucket_type: 4, bucket_value: "bob" }]);
    });

    it("is refused with every claim that offends (B07, B10, B12, B14)", () => {
        const creates = [username("a"), username("a b"), username("A")];
        const error = thrownBy(() => checkBatch(creates, [username(" ")]));
        assert.equal(error.code, "INVALID_UPDATE");
        const details = error.details.map(({ list, position, bucket_type, code }) => [list, position, bucket_type, code]);
        assert.deepEqual(details, [
            ["creates", 1, 4, "VALUE_NOT_ALLOWED"],
            ["creates", 2, 4, "INVALID_UPDATE"],
            ["destroys", 0, 4, "VALUE_NOT_ALLOWED"],
        ]);
        assert.ok(!`${error.message}${JSON.stringify(error.details)}`.includes("a b"), "an error shows no value");
        assert.deepEqual(thrownBy(() => checkBatch([], [])).details, []);
    });

    it("has ids of 64 bits", () => {
        const largest = 2n ** 63n - 1n;
        checkBatch([username("alice", largest)], []);
        const beyond: Claim = { ...username("alice"), subject: { subject_type: 4, id: 2n ** 63n } };
        assert.equal(thrownBy(() => checkBatch([beyond], [])).code, "INVALID_ARGUMENT");
    });

    it("has at most 2000 claims (B11)", () => {
        const claims = Array.from({ length: 2001 }, (_, at) => username(`name-${at}`));
        checkBatch(claims.slice(1), []);
        assert.equal(thrownBy(() => checkBatch(claims, [])).code, "LIMIT_EXCEEDED");
    });
});

describe("a source id", () => {
    it("keeps the order of keys", () => {
        const keys = [0n, 1n, 255n, 256n, 65_536n, 2n ** 63n - 1n];
        assert.deepEqual(keys.map(encodeSourceId), keys.map(sourceId));
    });

    it("is a uuid's bytes, and other text as it is", () => {
        assert.equal(encodeSourceId("01a1fefb-0383-7360-95c3-3b4e0d5dfab0").length, 16);
        assert.deepEqual(encodeSourceId("größe"), new TextEncoder().encode("größe"));
    });

    it("refuses what is no key", () => {
        assert.equal(thrownBy(() => encodeSourceId(-1n)).code, "INVALID_UPDATE");
        assert.equal(thrownBy(() => encodeSourceId("")).code, "INVALID_UPDATE");
        assert.equal(thrownBy(() => encodeSourceId("x".repeat(129))).code, "LIMIT_EXCEEDED");
        assert.equal(thrownBy(() => encodeSourceId(2n ** 63n)).code, "INVALID_ARGUMENT");
    });
});
