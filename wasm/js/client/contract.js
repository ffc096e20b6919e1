// The wire contract, as gRPC for Node takes it: the rpcs of sessions, locks and queues, and error details.
import { fromJSON } from "@grpc/proto-loader";

// The contract is a module, not a file to read: a bundler puts it into the bundle.
import description from "../../pkg/contract.js";

const contract = fromJSON(description, { longs: String, enums: String, defaults: true, oneofs: true });

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
