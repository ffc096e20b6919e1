// The words of the protocol that the page explains where they occur.
import { LANE_PURPOSES } from "./texts";

/** The terms, each with its explanation. A term that contains another one comes first. */
export const TERMS: Record<string, string> = {
    "lease row": "A row in the cell's own database. The COMMIT of a save writes it together with the save's rows, so it proves the save.",
    lease: "A lease holds names at the service for one save, until it is committed or rolled back.",
    fence: "A number that grows with each lease or grant. It tells a former holder from the present one.",
    reconciler: LANE_PURPOSES.reconciler,
    verifier: LANE_PURPOSES.verifier,
};

/** A part of a text; `term` is the key of `TERMS` that it names. */
export interface Segment {
    text: string;
    term?: string;
}

const PATTERN = new RegExp(`\\b(${Object.keys(TERMS).join("|")})(?=s?\\b)`, "iu");

/** Returns the parts of a text: the terms, and what lies between them. */
export function segments(text: string): Segment[] {
    const parts = text.split(PATTERN).map((part, index) => (index % 2 === 1 ? { text: part, term: part.toLowerCase() } : { text: part }));
    return parts.filter((part) => part.text !== "");
}
