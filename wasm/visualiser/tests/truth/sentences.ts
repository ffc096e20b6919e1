// The sentences of the page, each with the state of the world in which it holds.
import type { Moment } from "../../src/model/moment";

/** Everything against which a sentence is held: the event, and the run up to it. */
export interface Evidence extends Moment {
    /** The leases that have had a committed lease row so far. */
    provenLeases: ReadonlySet<string>;
}

/** The sentences that match `pattern` may be shown only if `holds` returns true. */
export interface Statement {
    pattern: RegExp;
    holds: (evidence: Evidence, match: RegExpMatchArray) => boolean;
}

/** Returns the sentences of a text. */
export function sentencesOf(text: string): string[] {
    return text.split(/(?<=[.?!])\s+(?=[A-Z“])/u);
}

/**
 * Returns the complaints about a text: sentences that do not hold, and sentences of which no
 * statement tells when they hold. Sentences in `general` say nothing about the present state.
 */
export function complaintsAbout(text: string, evidence: Evidence, statements: readonly Statement[], general: readonly string[]): string[] {
    return sentencesOf(text).flatMap((sentence) => {
        const matching = statements.map(({ pattern, holds }) => ({ match: sentence.match(pattern), holds })).filter(({ match }) => match !== null);
        if (matching.length === 0) return general.includes(sentence) ? [] : [`unchecked: ${sentence}`];
        return matching.flatMap(({ match, holds }) => (match !== null && holds(evidence, match) ? [] : [`false: ${sentence}`]));
    });
}
