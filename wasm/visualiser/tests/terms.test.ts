import { expect, test } from "vitest";

import { segments, TERMS } from "../src/model/terms";

test("finds each term in a text, the longest one first, and keeps the text", () => {
    const text = "Reconciler ← service: 2 leases; it looks for a lease row under fence 3, released by the verifier";
    expect(segments(text).flatMap(({ term }) => term ?? [])).toEqual(["reconciler", "lease", "lease row", "fence", "verifier"]);
    expect(segments(text).map((segment) => segment.text).join("")).toBe(text);
});

test("explains each term in sentences of at most 25 words", () => {
    const sentences = Object.values(TERMS).flatMap((text) => text.split(/(?<=\.)\s/u));
    expect(sentences.filter((sentence) => sentence.split(/\s+/u).length > 25)).toEqual([]);
});
