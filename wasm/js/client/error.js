// The errors of calls, with the same codes in every language.
import { status as GRPC } from "@grpc/grpc-js";

import { LeaseholdError } from "../error.js";
import { decodeStatus } from "./contract.js";

const DETAILS = "grpc-status-details-bin";
const TYPES = { info: "google.rpc.ErrorInfo", retry: "google.rpc.RetryInfo" };

/** The statuses of a call that may have taken effect. */
const UNKNOWN = [
    GRPC.CANCELLED,
    GRPC.UNKNOWN,
    GRPC.DEADLINE_EXCEEDED,
    GRPC.ABORTED,
    GRPC.INTERNAL,
    GRPC.UNAVAILABLE,
    GRPC.DATA_LOSS,
];
/**
 * The codes of calls that did not take effect, in spite of their statuses: an ask whose wait would
 * never end has left.
 */
const WITHOUT_EFFECT = ["TLS_REFUSED", "LOCK_CIRCLE"];
/** The statuses of a call that may succeed if it is repeated. */
const REPEATED = [GRPC.CANCELLED, GRPC.DEADLINE_EXCEEDED, GRPC.UNAVAILABLE];
/** The codes of calls for a session that has ended. */
const ENDED = ["SESSION_ENDED", "SESSION_NOT_FOUND"];

/** gRPC has no status for a TLS handshake that failed: only the message of OpenSSL or Node tells. */
const TLS_FAILURE = /certificate|SSL routines|altnames/iu;

/** The error of a call that was refused or got no answer. */
export class CallError extends LeaseholdError {
    /** True if the call may have taken effect. */
    isUnanswered;
    /** True if the same call may succeed a moment later. */
    isRepeatable;
    /** True if no call of this session can succeed any more. */
    isFinal;
    /** The time after which the server asks for the next attempt. */
    retryAfterMillis;
    /** True if an earlier attempt of the call may have taken effect. */
    followsUnanswered = false;

    constructor({ code: status, details: message, metadata }) {
        const { reason, retryAfterMillis } = richDetails(metadata);
        const code = reason || (isTlsFailure(status, message) ? "TLS_REFUSED" : GRPC[status]);
        const text = reason ? message : withoutGrpcWords(status, message);
        super(code, code === "TLS_REFUSED" ? `the TLS handshake failed: check \`tls\` (${message})` : text || code);
        this.isRepeatable = code === "OVERLOADED" || (REPEATED.includes(status) && code !== "TLS_REFUSED");
        this.isUnanswered = UNKNOWN.includes(status) && !WITHOUT_EFFECT.includes(code);
        this.isFinal = hasEnded(this) || status === GRPC.PERMISSION_DENIED || status === GRPC.UNAUTHENTICATED;
        this.retryAfterMillis = retryAfterMillis;
    }
}

/** Texts that gRPC composes if no server answered (`@grpc/grpc-js` 1.14). */
const NOT_CONNECTED = /^No connection established\. Last error: (?:Error: )?(.*?)\. Resolution note: /su;
const NOT_RESOLVED = /^Name resolution failed/u;
const BROKEN = /ECONNRESET|EPIPE|socket hang up|closed|Connection dropped|stream terminated/iu;
const CLOSED = new RegExp(`^Failed to connect|${BROKEN.source}`, "iu");
/** The causes of a failed connection, each in words for people with what to do. */
const CAUSES = [
    [/ECONNREFUSED/u, "nothing listens there: start it, or check `address`"],
    [/ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|Failed to connect before the deadline/u, "no answer came from its machine: check `address` and the network"],
    [/Protocol error|ERR_HTTP2/u, "what listens there is no server of Leasehold: check `address`"],
    [CLOSED, "it closes the connection: check that the server and `address` both use TLS, or neither"],
];

/** Returns a message in the words of this package, if gRPC has composed it because no server answered. */
function withoutGrpcWords(status, message) {
    if (status === GRPC.DEADLINE_EXCEEDED) return "no answer came in time";
    if (status !== GRPC.UNAVAILABLE) return message;
    if (NOT_RESOLVED.test(message)) return "cannot reach the server: its name is not known: check `address`";
    const [, cause] = NOT_CONNECTED.exec(message) ?? [];
    if (cause !== undefined) return `cannot reach the server: ${CAUSES.find(([pattern]) => pattern.test(cause))?.[1] ?? cause}`;
    return BROKEN.test(message) ? "the connection broke before an answer came" : message;
}

function isTlsFailure(status, message) {
    return status === GRPC.UNAVAILABLE && TLS_FAILURE.test(message);
}

function richDetails(metadata) {
    const [encoded] = metadata?.get(DETAILS) ?? [];
    const details = (encoded && decodeStatus("Status", encoded)?.details) ?? [];
    const find = (type) => details.find(({ typeUrl }) => typeUrl.endsWith(`/${type}`))?.value;
    const [info, retry] = [find(TYPES.info), find(TYPES.retry)];
    const { reason, domain } = (info && decodeStatus("ErrorInfo", info)) ?? {};
    const { seconds = 0, nanos = 0 } = (retry && decodeStatus("RetryInfo", retry)?.retryDelay) ?? {};
    return { reason: domain === "leasehold" ? reason : "", retryAfterMillis: Number(seconds) * 1e3 + nanos / 1e6 };
}

/** Returns true for an error that says that the session has ended. */
export function hasEnded(error) {
    return error instanceof LeaseholdError && ENDED.includes(error.code);
}

/** The kinds of what a session holds, each with the code of its loss and what may happen after it. */
export const LOCK = { noun: "lock", lossCode: "LOCK_LOST", danger: "another process may hold the lock" };

export const BATCH = { noun: "batch", lossCode: "BATCH_LOST", danger: "another worker may have its requests" };

/** Returns the error of a process that does not hold something of this kind any more. */
export function lost({ lossCode, danger }, what, cause) {
    const error = new LeaseholdError(lossCode, `${what}: stop the work, ${danger}`);
    return cause ? Object.assign(error, { cause }) : error;
}

/** Returns the error for settings or arguments that cannot work. */
export function misconfigured(message, code = "MISCONFIGURED") {
    return new LeaseholdError(code, message);
}
