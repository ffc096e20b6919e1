// The wire contract, as gRPC for Node takes it: the rpcs of sessions, locks and queues, and error details.
import { fileURLToPath } from "node:url";

import { loadSync } from "@grpc/proto-loader";

const FILES = [
    "leasehold/sessions/v1/session_service.proto",
    "leasehold/locks/v1/lock_service.proto",
    "leasehold/queues/v1/queue_service.proto",
    "status.proto",
];
const directories = ["../../pkg/proto", "."].map((path) => fileURLToPath(new URL(path, import.meta.url)));
const contract = loadSync(FILES, { includeDirs: directories, longs: String, enums: String, defaults: true, oneofs: true });

/** The rpcs by their names, such as `AcquireLock`: each with its path and its conversions. */
export const RPCS = {
    ...contract["leasehold.sessions.v1.SessionService"],
    ...contract["leasehold.locks.v1.LockService"],
    ...contract["leasehold.queues.v1.QueueService"],
};

/** Returns the message of `status.proto` that these bytes encode; undefined if they encode none. */
export function decodeStatus(name, bytes) {
    try {
        return contract[`leasehold.status.${name}`].deserialize(bytes);
    } catch {
        // A proxy may put any bytes there.
        return undefined;
    }
}
