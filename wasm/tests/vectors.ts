// Golden vectors, as far as values of claims go: scenarios, each a list of steps with what they say and what is answered.
import { readFileSync } from "node:fs";

const ROOT = new URL("../../../", import.meta.url);
const PROTO = "proto/proto/gitlab/cells/topology_service/claims/v1/record.proto";
const TOKEN = /"(?:\\.|[^"\\])*"|\S+/gu;
const ESCAPES: Record<string, string> = { n: "\n", r: "\r", t: "\t", "0": "\0", '"': '"', "\\": "\\" };

/** A value that a step or an answer names. */
export interface Named {
    list: string;
    bucketType: number;
    value: string;
}

export interface Step {
    verb: string;
    claims: Named[];
    answer: string;
}

export interface Scenario {
    heading: string;
    steps: Step[];
}

/** The scenarios of a file of golden vectors. */
export function readVectors(name: string): Scenario[] {
    const [, ...scenarios] = readText(`tests/vectors/${name}.txt`).split(/^## /mu);
    return scenarios.map((scenario) => {
        const end = scenario.indexOf("\n");
        return { heading: scenario.slice(0, end), steps: readSteps(scenario.slice(end)) };
    });
}

/** The claims that an answer shows, by their lines. */
export function shownClaims(answer: string): Named[] {
    return answer.split("\n").flatMap((line) => {
        const [type, value] = tokens(line.replace(/^cell \d+:/u, ""));
        return type !== undefined && value?.startsWith('"') ? [named("shown", type, value)] : [];
    });
}

function readSteps(body: string): Step[] {
    const blocks = body.replace(/^#.*\n/gmu, "").split("\n\n").map((block) => block.trim());
    return blocks.filter((block) => block !== "").map((block) => {
        const [asked = "", answer = ""] = block.split(/^----\n/mu);
        return { verb: tokens(asked)[0] ?? "", claims: readClaims(tokens(asked)), answer };
    });
}

function readClaims(words: string[]): Named[] {
    return words.flatMap((list, at) => {
        const [type, value] = words.slice(at + 1, at + 3);
        const isClaim = ["create", "destroy", "get"].includes(list) && value?.startsWith('"');
        return isClaim && type !== undefined && value !== undefined ? [named(list, type, value)] : [];
    });
}

function named(list: string, type: string, quoted: string): Named {
    return { list, bucketType: bucketType(type), value: unquote(quoted) };
}

function tokens(text: string): string[] {
    return text.match(TOKEN) ?? [];
}

/** The number of a bucket type's name. */
export function bucketType(name: string): number {
    const number = /^bucket#(\d+)$/u.exec(name)?.[1] ?? new RegExp(`^ *${name} = (\\d+);`, "mu").exec(BUCKET_TYPES)?.[1];
    if (number === undefined) throw new Error(`no bucket type is called ${name}`);
    return Number(number);
}

function unquote(token: string): string {
    return token.slice(1, -1).replace(/\\u\{([0-9a-f]+)\}|\\(.)/giu, (_, hex: string | undefined, one: string) =>
        hex === undefined ? ESCAPES[one] ?? one : String.fromCodePoint(Number.parseInt(hex, 16)),
    );
}

function readText(path: string): string {
    return readFileSync(new URL(path, ROOT), "utf8");
}

const BUCKET_TYPES = /^message Bucket \{.*?^\}/msu.exec(readText(PROTO))?.[0] ?? "";
