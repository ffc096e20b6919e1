// Recognises messages and entries of the simulation by their texts.
//
// The package hands out messages as text only. This module holds every pattern that the page
// matches on them; the texts are written by `simulation/src/message_text.rs` and by
// `simulation/src/event_text.rs`. The test `tests/message_texts.test.ts` fails if a pattern matches no
// text of the scenarios any more.

/** Returns true for a request to commit a lease. */
export function isCommitRequest(text: string): boolean {
    return text === "commit";
}

/** Returns true for a request to roll a lease back. */
export function isRollbackRequest(text: string): boolean {
    return text === "roll back";
}

/** Returns true for a request that settles a lease. */
export function isSettleRequest(text: string): boolean {
    return isCommitRequest(text) || isRollbackRequest(text);
}

/** Returns true for a request that begins a lease. */
export function isBeginRequest(text: string): boolean {
    return text.startsWith("begin:");
}

/** Returns true for the answer that a lease is begun. */
export function isBegunAnswer(text: string): boolean {
    return text.startsWith("begun");
}

/** Returns true for the answer that a lease is settled as asked. */
export function isDoneAnswer(text: string): boolean {
    return text === "done";
}

/** Returns true for an answer that tells the outcome of a lease. */
export function isOutcomeAnswer(text: string): boolean {
    return isDoneAnswer(text) || text.startsWith("it was ");
}

/** Returns true for the answer that the service does not know the lease. */
export function isUnknownLeaseAnswer(text: string): boolean {
    return text.includes("no such lease");
}

/**
 * Returns true for a refusal of a begin that the caller may retry: another lease holds the name.
 */
export function isBusyAnswer(text: string): boolean {
    return text.startsWith("refused") && text.includes("under another lease");
}

/** Returns true for a refusal of a begin. */
export function isRefusedAnswer(text: string): boolean {
    return text.startsWith("refused");
}

/** Returns true if an entry is about the lease row of a verifier's correction. */
export function isVerifierLeaseRow(sentence: string): boolean {
    return /verifier .*lease row/.test(sentence);
}

/** Returns true if an entry writes a lease row. */
export function isLeaseRowWrite(sentence: string): boolean {
    return sentence.includes("writes its lease row");
}

/** Returns true if an entry says that the database refused a transaction for its age. */
export function isRefusedByDatabase(sentence: string): boolean {
    return /refuse|too late/i.test(sentence);
}
