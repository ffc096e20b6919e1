// Every wrong argument of the clients throws a `LeaseholdError` before a call is sent, and a server that is
// absent is told in plain words. No server of Leasehold runs here.
import assert from "node:assert/strict";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";

import { connect as connectLocks, LeaseholdError } from "leasehold/locks";
import { connect as connectQueues } from "leasehold/queues";

// The port is one on which nothing listens.
const ADDRESS = { address: "http://127.0.0.1:1", timeoutSeconds: 0 };
const run = (): void => {};
/** A UUID that no request has. */
const ID = "01a1fefb-0383-7360-95c3-3b4e0d5dfab0";

type Call = (...values: unknown[]) => unknown;

/** Returns the error of a call, also of one whose result is iterated. */
async function errorOf(call: () => unknown): Promise<unknown> {
    try {
        const result = call();
        await (result !== null && typeof result === "object" && "next" in result ? (result as AsyncIterator<unknown>).next() : result);
    } catch (error) {
        return error;
    }
    return undefined;
}

async function refusalOf(object: object, method: string, values: readonly unknown[]): Promise<LeaseholdError> {
    const call = (object as Record<string, Call>)[method];
    const error = await errorOf(() => call?.apply(object, [...values]));
    assert.ok(error instanceof LeaseholdError, `${method}: ${String(error)}`);
    return error;
}

const LOCK_CALLS: Record<string, unknown[]> = {
    lock: ["a", "b", {}, run],
    acquire: ["a", "b", {}],
    lockAll: [[{ namespace: "a", key: "b" }], {}, run],
    acquireAll: [[{ namespace: "a", key: "b" }], {}],
    reap: ["a", {}, run],
    get: ["a", "b", {}],
    list: ["a"],
    force: ["a", "b", 1n, {}],
    resolveOrphan: ["a", "b", 1n, "retry", {}],
};

const QUEUE_CALLS: Record<string, unknown[]> = {
    submit: ["s", { key: "7" }],
    submitAll: ["s", [{ key: "7" }]],
    take: ["s", {}],
    work: ["s", {}, run],
    getRequest: [ID, {}],
    listRequests: ["s", "waiting", {}],
    listLanes: ["s", "ready"],
    getQueue: ["s"],
    pause: ["s", {}],
    resume: ["s", {}],
    setLimit: ["s", 3],
    withdraw: [ID],
    resubmit: [ID],
};

/** Values that no argument of the clients takes, in place of any. */
const WRONG: unknown[] = [5, -1, Number.NaN, true, Symbol("secret"), ["secret"], new Map(), { foo: 1 }, { value: 5 }, { signal: 3 }, { wait: "3" }];

for (const [name, connect, calls] of [
    ["locks", connectLocks, LOCK_CALLS],
    ["queues", connectQueues, QUEUE_CALLS],
] as const) {
    describe(name, () => {
        it("refuse each wrong argument of each method, by its name and without its text", async () => {
            const client = connect(ADDRESS);
            for (const [method, right] of Object.entries(calls)) {
                for (const [position, value] of right.entries()) {
                    for (const wrong of WRONG.filter((wrong) => !(typeof value === "number" && wrong === 5))) {
                        const values = [...right.slice(0, position), wrong, ...right.slice(position + 1)];
                        const { code, message } = await refusalOf(client, method, values);
                        assert.equal(code, "INVALID_ARGUMENT", `${method} ${position}: ${message}`);
                        assert.match(message, /^`[^`]+` .*: pass /u);
                        assert.doesNotMatch(message, /secret/u);
                    }
                }
            }
            await client.close();
        });

        it("refuse a missing argument", async () => {
            const client = connect(ADDRESS);
            for (const method of Object.keys(calls).filter((method) => method !== "list")) {
                const { code, message } = await refusalOf(client, method, []);
                assert.deepEqual([code, message.includes("is missing: pass")], ["INVALID_ARGUMENT", true], message);
            }
            await client.close();
        });

        it("refuse wrong and unknown settings", () => {
            for (const settings of [5, "http://127.0.0.1", [], { foo: 1 }, { address: 5 }, { tls: 5 }, { tls: { ca: "a" } }, { allowPlaintext: "yes" }, { storeId: 5 }, { timeoutSeconds: "3" }]) {
                assert.throws(() => connect(settings as never), { name: "LeaseholdError", code: "MISCONFIGURED" }, JSON.stringify(settings));
            }
        });

        it("take null for absent settings and options", async () => {
            const client = connect(null as never);
            const method = name === "locks" ? "get" : "pause";
            const values = calls[method]?.slice(0, -1).concat([null]) ?? [];
            await client.close();
            assert.equal((await refusalOf(client, method, values)).code, "CLOSED");
        });
    });
}

it("a body whose buffer was transferred is not sent as an empty one", async () => {
    const [client, body] = [connectQueues(ADDRESS), Uint8Array.of(1)];
    structuredClone(body, { transfer: [body.buffer] });
    const { code, message } = await refusalOf(client, "submit", ["s", { key: "7", body }]);
    assert.equal(code, "INVALID_ARGUMENT");
    assert.match(message, /^`.*body` is detached: pass a `Uint8Array` that still has its buffer$/u);
    await client.close();
});

/** Starts a listener that is no server of Leasehold, and returns its address. */
async function listener(test: TestContext, serve: (socket: Socket) => void): Promise<string> {
    const server = createServer((socket) => serve(socket.on("error", () => {}).on("data", () => {})));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    test.after(() => server.close());
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("a server that is absent", () => {
    const messageAt = async (address: string): Promise<string> => {
        const client = connectLocks({ address, timeoutSeconds: 0.5, allowPlaintext: true });
        const { message } = await refusalOf(client, "get", ["a", "b"]);
        await client.close();
        return message;
    };

    it("is told in plain words, with what to do", async (test) => {
        assert.equal(await messageAt("http://127.0.0.1:1"), "cannot reach the server: nothing listens there: start it, or check `address`");
        assert.equal(await messageAt("http://nowhere.invalid:7171"), "cannot reach the server: its name is not known: check `address`");
        const silent = await listener(test, (socket) => void test.after(() => socket.destroy()));
        assert.equal(await messageAt(silent), "no answer came in time");
        for (const serve of [(socket: Socket) => void socket.end("HTTP/1.1 400 no\r\n\r\n"), (socket: Socket) => void socket.destroy()]) {
            const message = await messageAt(await listener(test, serve));
            assert.match(message, /^cannot reach the server: .*: check |^the connection broke before an answer came$|^no answer came in time$/u);
        }
    });
});
