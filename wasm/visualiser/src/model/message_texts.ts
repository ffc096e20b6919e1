// Recognises messages and timeline entries of the simulation by their texts.
//
// The npm package returns messages only as text, written by `simulation/src/message_text.rs` and
// `simulation/src/event_text.rs`. This module contains every pattern that the page matches on them.
// The test `tests/message_texts.test.ts` fails if a pattern no longer matches any text of the
// scenarios.

/** Returns the text of a message in words that a newcomer knows: a bucket is a name, a claim is what holds it. */
export function plainText(text: string): string {
    return text.replaceAll("the bucket is taken", "the name is taken").replaceAll("the claim is under another lease", "another lease holds the name");
}

/** Returns true if the text of a message is a request to commit a lease. */
export function isCommitRequest(text: string): boolean {
    return text === "commit";
}

/** Returns true if the text of a message is a request to roll a lease back. */
export function isRollbackRequest(text: string): boolean {
    return text === "roll back";
}

/** Returns true if the text of a message is a request to commit a lease or to roll it back. */
export function isSettleRequest(text: string): boolean {
    return isCommitRequest(text) || isRollbackRequest(text);
}

/** Returns true if the text of a message is a request to begin a lease. */
export function isBeginRequest(text: string): boolean {
    return text.startsWith("begin:");
}

/** Returns true if the text of a message is the answer that a lease is begun. */
export function isBegunAnswer(text: string): boolean {
    return text.startsWith("begun");
}

/** Returns true if the text of a message is the answer that a lease is settled as requested. */
export function isDoneAnswer(text: string): boolean {
    return text === "done";
}

/** Returns true if the text of a message is an answer that tells how a lease was settled. */
export function isOutcomeAnswer(text: string): boolean {
    return isDoneAnswer(text) || text.startsWith("it was ");
}

/** Returns true if the text of a message is the answer that the service does not know the lease. */
export function isUnknownLeaseAnswer(text: string): boolean {
    return text.includes("no such lease");
}

/**
 * Returns true if the text of a message is the refusal of a begin because another lease holds the
 * name. The caller may retry such a begin.
 */
export function isBusyAnswer(text: string): boolean {
    return text.startsWith("refused") && text.includes("under another lease");
}

/** Returns true if the text of a message is the answer of a service that is down. */
export function isUnavailableAnswer(text: string): boolean {
    return text === "unavailable";
}

/** Returns true if the sentence of an entry concerns the lease row of a verifier's correction. */
export function isVerifierLeaseRow(sentence: string): boolean {
    return /verifier .*lease row/.test(sentence);
}

/** Returns true if the sentence of an entry tells that a lease row is written. */
export function isLeaseRowWrite(sentence: string): boolean {
    return sentence.includes("writes its lease row");
}

/**
 * Returns true if the sentence of an entry tells that the database refused a transaction because it
 * was open for too long.
 */
export function isTransactionTooOld(sentence: string): boolean {
    return sentence.includes("open for too long");
}
