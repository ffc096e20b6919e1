// The eviction of a session by an operator, which the package itself does not offer.
import { fileURLToPath } from "node:url";

import { type Client, credentials, loadPackageDefinition, type ServiceClientConstructor } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const NAME = "leasehold.sessions.v1.SessionService";
const CONTRACT = fileURLToPath(new URL("../../../../proto/proto", import.meta.url));
const contract = loadSync("leasehold/sessions/v1/session_service.proto", { includeDirs: [CONTRACT] });

type SessionService = Client & {
    evictSession(request: { sessionId: Buffer }, done: (error: Error | null) => void): void;
};

/** Evicts a session of a server without TLS. */
export async function evict(url: string, sessionId: string): Promise<void> {
    const { [NAME]: definition } = contract;
    const { service: Service } = loadPackageDefinition({ service: definition! }) as { service: ServiceClientConstructor };
    const client = new Service(url.replace("http://", ""), credentials.createInsecure()) as unknown as SessionService;
    try {
        await new Promise<void>((resolve, reject) => {
            const request = { sessionId: Buffer.from(sessionId.replaceAll("-", ""), "hex") };
            client.evictSession(request, (error) => (error ? reject(error) : resolve()));
        });
    } finally {
        client.close();
    }
}
