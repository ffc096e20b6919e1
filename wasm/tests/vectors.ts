// Reads the golden vectors of the folder `tests/vectors`, as far as they concern the values of
// claims. A file has scenarios. Each scenario has steps with a request and the expected answer.
import { readFileSync } from "node:fs";

const ROOT = new URL("../../../", import.meta.url);
const PROTO = "proto/proto/gitlab/cells/topology_service/claims/v1/record.proto";
const TOKEN = /"(?:\\.|[^"\\])*"|\S+/gu;
const ESCAPES: Record<string, string> = { n: "\n", r: "\r", t: "\t", "0": "\0", '"': '"', "\\": "\\" };

/**
 * A claim that a request or an answer of a golden vector names. `list` is the word before the
 * claim: `create`, `destroy` or `get`, or `shown` in an answer.
 */
export interface NamedClaim {
    list: string;
    bucketType: number;
    value: string;
}

/**
 * One step of a golden vector: the verb of its request, the claims of the request, and the expected
 * answer as text.
 */
export interface VectorStep {
    verb: string;
    claims: NamedClaim[];
    answer: string;
}

/** One scenario of a file of golden vectors. */
export interface VectorScenario {
    heading: string;
    steps: VectorStep[];
}

/** Returns the scenarios of the golden vector file `tests/vectors/NAME.txt`. */
export function readVectors(name: string): VectorScenario[] {
    const [, ...scenarios] = readText(`tests/vectors/${name}.txt`).split(/^## /mu);
    return scenarios.map((scenario) => {
        const end = scenario.indexOf("\n");
        return { heading: scenario.slice(0, end), steps: readSteps(scenario.slice(end)) };
    });
}

/** Returns the claims that an expected answer shows, in the order of its lines. */
export function shownClaims(answer: string): NamedClaim[] {
    return answer.split("\n").flatMap((line) => {
        const [type, value] = tokens(line.replace(/^cell \d+:/u, ""));
        return type !== undefined && value?.startsWith('"') ? [namedClaim("shown", type, value)] : [];
    });
}

function readSteps(body: string): VectorStep[] {
    const blocks = body.replace(/^#.*\n/gmu, "").split("\n\n").map((block) => block.trim());
    return blocks.filter((block) => block !== "").map((block) => {
        const [request = "", answer = ""] = block.split(/^----\n/mu);
        return { verb: tokens(request)[0] ?? "", claims: readClaims(tokens(request)), answer };
    });
}

function readClaims(words: string[]): NamedClaim[] {
    return words.flatMap((list, index) => {
        const [type, value] = words.slice(index + 1, index + 3);
        const isClaim = ["create", "destroy", "get"].includes(list) && value?.startsWith('"');
        return isClaim && type !== undefined && value !== undefined ? [namedClaim(list, type, value)] : [];
    });
}

function namedClaim(list: string, type: string, quoted: string): NamedClaim {
    return { list, bucketType: bucketType(type), value: unquote(quoted) };
}

function tokens(text: string): string[] {
    return text.match(TOKEN) ?? [];
}

/**
 * Returns the wire number of a bucket type: N of `bucket#N`, or the number of an enum name in
 * `record.proto`.
 */
export function bucketType(name: string): number {
    const number = /^bucket#(\d+)$/u.exec(name)?.[1] ?? new RegExp(`^ *${name} = (\\d+);`, "mu").exec(BUCKET_TYPES)?.[1];
    if (number === undefined) throw new Error(`\`record.proto\` has no bucket type \`${name}\``);
    return Number(number);
}

function unquote(token: string): string {
    return token.slice(1, -1).replace(/\\u\{([0-9a-f]+)\}|\\(.)/giu, (_, hex: string | undefined, escaped: string) =>
        hex === undefined ? ESCAPES[escaped] ?? escaped : String.fromCodePoint(Number.parseInt(hex, 16)),
    );
}

function readText(path: string): string {
    return readFileSync(new URL(path, ROOT), "utf8");
}

const BUCKET_TYPES = /^message Bucket \{.*?^\}/msu.exec(readText(PROTO))?.[0] ?? "";
