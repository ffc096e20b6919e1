// Tests the patterns with which the page recognises messages of the simulation. They fail if the
// simulation changes a text.
import { scenarios, Simulation } from "leasehold/simulation";
import { describe, expect, test } from "vitest";

import * as texts from "../src/model/message_texts";

/**
 * Returns the text of every message and the sentence of every event, in the scenarios and in a run
 * of random events.
 */
function allTexts(): { messages: string[]; sentences: string[] } {
    const random = new Simulation({ seed: 1, cells: 2 });
    random.play(20_000);
    const runs = [random, ...scenarios().map(({ trace }) => Simulation.load(JSON.stringify(trace)))];
    const entries = runs.flatMap((run) => run.entries(0, run.length));
    return { messages: entries.flatMap(({ sent }) => sent.map(({ says }) => says)), sentences: entries.map(({ says }) => says) };
}

const { messages, sentences } = allTexts();

const MESSAGE_PATTERNS = {
    isCommitRequest: texts.isCommitRequest,
    isRollbackRequest: texts.isRollbackRequest,
    isSettleRequest: texts.isSettleRequest,
    isBeginRequest: texts.isBeginRequest,
    isBegunAnswer: texts.isBegunAnswer,
    isDoneAnswer: texts.isDoneAnswer,
    isOutcomeAnswer: texts.isOutcomeAnswer,
    isUnknownLeaseAnswer: texts.isUnknownLeaseAnswer,
    isBusyAnswer: texts.isBusyAnswer,
    isUnavailableAnswer: texts.isUnavailableAnswer,
};

const SENTENCE_PATTERNS = {
    isVerifierLeaseRow: texts.isVerifierLeaseRow,
    isLeaseRowWrite: texts.isLeaseRowWrite,
    isTransactionTooOld: texts.isTransactionTooOld,
};

describe("patterns of the simulation's texts", () => {
    test.each(Object.entries(MESSAGE_PATTERNS))("%s matches some messages, and not all", (_, matches) => {
        const matched = messages.filter(matches);
        expect(matched.length).toBeGreaterThan(0);
        expect(matched.length).toBeLessThan(messages.length);
    });

    test.each(Object.entries(SENTENCE_PATTERNS))("%s matches some sentences, and not all", (_, matches) => {
        const matched = sentences.filter(matches);
        expect(matched.length).toBeGreaterThan(0);
        expect(matched.length).toBeLessThan(sentences.length);
    });

    test("isOutcomeAnswer matches the answer for a lease that was settled before", () => {
        const outcomes = messages.filter((text) => texts.isOutcomeAnswer(text) && !texts.isDoneAnswer(text));
        expect(outcomes.length).toBeGreaterThan(0);
    });
});
