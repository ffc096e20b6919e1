// Queues on the real server: submits, and the calls of operators. The names of the promises stand in
// `docs/src/reference/promises.md`.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, it } from "node:test";
import { inspect } from "node:util";

import { type NewRequest, type RequestStatus } from "leasehold/queues";

import { Authority } from "./support/certificates.js";
import { ClaimsServer } from "./support/claims_server.js";
import { all, code, rejection } from "./support/outcomes.js";
import { TcpProxy } from "./support/tcp_proxy.js";

/** The longest time of all tests of one `describe`. */
const BOUND = { timeout: 600_000 };

const shared = new ClaimsServer();
before(() => shared.start());
after(() => shared.end());

const keys = (items: readonly { readonly key: string }[]): string[] => items.map(({ key }) => key);

describe("a submit", BOUND, () => {
    it("Q01 Q12: makes a request, which can be read with its body", async (test) => {
        const queues = shared.queues(test);
        const before = Date.now();
        const { id, isNew } = await queues.submit("read", { key: "7", body: "größe", priority: 3, delay: 3600, maxAttempts: 5 });
        assert.equal(isNew, true);
        const found = (await queues.getRequest(id, { withBody: true })) as RequestStatus;
        assert.equal(new TextDecoder().decode(found.body), "größe");
        const { number, notBefore, submittedAt, updatedAt, ...rest } = found;
        assert.deepEqual(rest, { id, queue: "read", key: "7", kind: "update", priority: 3, state: "new", attempts: 0, maxAttempts: 5, bodyBytes: 7 });
        assert.equal(typeof number, "bigint");
        assert.deepEqual(submittedAt, updatedAt);
        for (const time of [submittedAt.getTime(), notBefore.getTime() - 3_600_000]) {
            assert.ok(time >= before - 1 && time <= Date.now(), String(time - before));
        }
        assert.equal((await queues.getRequest(id))?.body, undefined);
        assert.equal(await queues.getRequest(randomUUID()), undefined);
    });

    it("Q16: makes ids that begin with the time, by which the history leaves", async (test) => {
        const queues = shared.queues(test);
        const before = Date.now();
        const made = await queues.submitAll("ids", Array.from({ length: 1_000 }, () => ({ key: "7" })));
        const ids = made.map(({ id }) => id);
        for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/u);
        const bits = ids.map((id) => BigInt(`0x${id.replaceAll("-", "")}`));
        const times = bits.map((each) => Number(each >> 80n));
        assert.deepEqual(times, [...times].sort((a, b) => a - b));
        assert.ok(before <= times[0]! && times.at(-1)! <= Date.now(), `${before} ${times[0]} ${times.at(-1)}`);
        // All other bits are random: each is 0 in some id, and 1 in another one.
        const [zeros, ones] = [bits.reduce((all, each) => all & each), bits.reduce((all, each) => all | each)];
        assert.equal((zeros | ~ones) & ((1n << 76n) - 1n), 0b11n << 62n);
        assert.deepEqual((await all(queues.listRequests("ids", "waiting", { key: "7" }))).map(({ id }) => id), ids);
    });

    it("Q09: that is repeated makes the request once", async (test) => {
        const queues = shared.queues(test);
        const request: NewRequest = { key: "7", body: "x", id: randomUUID() };
        assert.deepEqual(await queues.submit("repeated", request), { id: request.id, isNew: true });
        assert.deepEqual(await queues.submit("repeated", request), { id: request.id, isNew: false });
        assert.equal((await all(queues.listRequests("repeated", "waiting", { key: "7" }))).length, 1);
        assert.equal(await code(queues.submit("repeated", { ...request, body: "y" })), "IDEMPOTENCY_KEY_REUSED");
    });

    it("Q09: of a second create of a resource gets the first", async (test) => {
        const queues = shared.queues(test);
        const create: NewRequest = { key: "7", kind: "create" };
        const first = await queues.submit("created", create);
        const [again, other] = await queues.submitAll("created", [create, { ...create, key: "8" }]);
        assert.deepEqual([again, other?.isNew], [{ id: first.id, isNew: false }, true]);
    });

    it("Q09: whose answer was lost is sent again, and makes the request once", async (test) => {
        const server = await ClaimsServer.start(test);
        const proxy = await TcpProxy.start(test, server.port);
        const queues = server.queues(test, { address: proxy.url });
        await queues.getQueue("lost");
        void proxy.cutNextAnswer().then(() => proxy.open());
        const { id, isNew } = await queues.submit("lost", { key: "7" });
        assert.equal(isNew, false);
        const waiting = await all(queues.listRequests("lost", "waiting", { key: "7" }));
        assert.deepEqual(waiting.map((request) => request.id), [id]);
    });

    it("of several requests makes all or none", async (test) => {
        const queues = shared.queues(test);
        const requests = ["1", "2"].map((key) => ({ key }));
        assert.equal(await code(queues.submitAll("several", [...requests, { key: "" }])), "INVALID_UPDATE");
        assert.deepEqual(await all(queues.listLanes("several", "ready")), []);
        const made = await queues.submitAll("several", requests);
        assert.deepEqual([made.map(({ isNew }) => isNew), new Set(made.map(({ id }) => id)).size], [[true, true], 2]);
        assert.deepEqual(keys(await all(queues.listLanes("several", "ready"))), ["1", "2"]);
    });

    it("Q22: is refused without a text of its key or body", async (test) => {
        const queues = shared.queues(test);
        const refused = async (request: object, expected: string): Promise<void> => {
            const error = await rejection(queues.submit("refused", { body: "secret", ...request } as NewRequest));
            assert.equal(error.code, expected);
            assert.doesNotMatch(`${error.stack}${inspect(error)}`, /secret/u);
        };
        await refused({ key: "secret\n" }, "INVALID_UPDATE");
        await refused({ key: "secret\ud800" }, "INVALID_UPDATE");
        await refused({ key: "secret".repeat(100) }, "LIMIT_EXCEEDED");
        await refused({ key: "7", body: "secret".repeat(11_000) }, "LIMIT_EXCEEDED");
        await refused({ key: "7", priority: 10 }, "LIMIT_EXCEEDED");
        await refused({ key: "7", delay: 366 * 86_400 }, "LIMIT_EXCEEDED");
        await refused({ key: "7", maxAttempts: 1001 }, "LIMIT_EXCEEDED");
        await refused({ key: "7", maxAttempts: 0 }, "INVALID_ARGUMENT");
        await refused({ key: "7", kind: "secret" }, "INVALID_ARGUMENT");
        await refused({ key: "7", delay: -1 }, "INVALID_ARGUMENT");
        await refused({ key: "7", id: "secret" }, "INVALID_ARGUMENT");
        const wrong = { toString: () => "secret" };
        for (const [name, request] of Object.entries({ key: { key: wrong }, body: { key: "7", body: wrong } })) {
            const isMeant = (error: Error): boolean => error.message.startsWith(`\`request.${name}\` is`) && !error.message.includes("secret");
            await assert.rejects(queues.submit("refused", request as never), isMeant);
        }
        await assert.rejects(queues.submitAll("refused", "secret" as never), { name: "LeaseholdError", code: "INVALID_ARGUMENT", message: /^(?!.*secret)/u });
        assert.deepEqual(await all(queues.listLanes("refused", "ready")), []);
    });

    it("Q22: shows no body in the text of a request", async (test) => {
        const queues = shared.queues(test);
        const { id } = await queues.submit("shown", { key: "7", body: "secret" });
        const found = await queues.getRequest(id, { withBody: true });
        assert.ok(found?.body);
        assert.doesNotMatch(inspect(found) + JSON.stringify({ ...found, number: 0 }), /secret|115/u);
    });
});

describe("an operator", BOUND, () => {
    it("Q19: pauses and resumes a queue and a lane", async (test) => {
        const queues = shared.queues(test);
        await queues.submitAll("paused", ["1", "2"].map((key) => ({ key })));
        const lists = async (): Promise<string[][]> =>
            await Promise.all((["ready", "paused"] as const).map(async (list) => keys(await all(queues.listLanes("paused", list)))));
        await queues.pause("paused", { key: "1" });
        assert.deepEqual(await lists(), [["2"], ["1"]]);
        await queues.resume("paused", { key: "1" });
        assert.deepEqual((await lists())[1], []);
        await queues.pause("paused");
        assert.equal((await queues.getQueue("paused")).isPaused, true);
        await queues.resume("paused");
        assert.equal((await queues.getQueue("paused")).isPaused, false);
        assert.equal(await code(queues.pause("paused", { key: "" })), "INVALID_ARGUMENT");
    });

    it("Q17: limits a queue", async (test) => {
        const queues = shared.queues(test);
        assert.deepEqual(await queues.getQueue("limited"), { isPaused: false, limit: undefined, taken: 0 });
        await queues.setLimit("limited", 3);
        assert.equal((await queues.getQueue("limited")).limit, 3);
        await queues.setLimit("limited", undefined);
        assert.equal((await queues.getQueue("limited")).limit, undefined);
        assert.equal(await code(queues.setLimit("limited", 0)), "INVALID_ARGUMENT");
    });

    it("withdraws a request that waits", async (test) => {
        const queues = shared.queues(test);
        const { id } = await queues.submit("withdrawn", { key: "7" });
        assert.equal(await queues.resubmit(id), "new");
        assert.equal(await queues.withdraw(id), "new");
        assert.equal(await queues.withdraw(id), undefined);
        assert.equal(await queues.getRequest(id), undefined);
    });

    it("Q05: lists requests and lanes in pages", async (test) => {
        const queues = shared.queues(test);
        const names = Array.from({ length: 1001 }, (_, number) => String(number).padStart(4, "0"));
        for (const part of [names.slice(0, 1000), names.slice(1000)]) {
            await queues.submitAll("pages", part.map((body) => ({ key: "7", body })));
            await queues.submitAll("pages.later", part.map((key) => ({ key, delay: 3600 })));
        }
        const numbers = (await all(queues.listRequests("pages", "waiting", { key: "7" }))).map(({ number }) => number);
        assert.equal(numbers.length, 1001);
        assert.deepEqual(numbers, [...numbers].sort((one, other) => Number(one - other)));
        const later = await all(queues.listLanes("pages.later", "delayed"));
        assert.deepEqual([keys(later).sort(), later[0]?.waiting, later[0]?.fence], [names, 1, undefined]);
        assert.deepEqual(await all(queues.listLanes("pages", "taken")), []);
    });

    it("alone may operate, and a service uses the queues of its namespaces", async (test) => {
        const authority = new Authority(test);
        const access = '[[locks.access]]\ncaller = "service/billing"\nnamespaces = ["bill"]\n';
        const server = await ClaimsServer.start(test, authority.server(), access);
        const queues = server.queues(test, { tls: authority.service("billing") });
        const { id } = await queues.submit("bill.month", { key: "7" });
        assert.equal(await code(queues.submit("user", { key: "7" })), "RULE_DENIED");
        assert.equal(await code(queues.pause("bill.month")), "RULE_DENIED");
        assert.equal(await code(queues.withdraw(id)), "RULE_DENIED");
        assert.equal(await server.queues(test, { tls: authority.admin() }).withdraw(id), "new");
    });
});

describe("closed queues", BOUND, () => {
    it("refuse calls", async (test) => {
        const queues = shared.queues(test);
        await Promise.all([queues.close(), queues.close()]);
        assert.equal(await code(queues.submit("closed", { key: "7" })), "CLOSED");
    });
});
