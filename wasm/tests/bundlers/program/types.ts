// A program that imports every entry, and names the types that depend on the platform.
import { BucketType, canonicalForm, type Claim, LeaseholdError, Reconciliation, SourceType, SubjectType, Verification } from "leasehold";
import { type AcquireOptions, connect, type HeldLock, type TlsFiles } from "leasehold/locks";
import { type Batch, connect as connectQueues } from "leasehold/queues";
import { Explorer, ruleWorld, Simulation } from "leasehold/simulation";
import { init as initSimulation } from "leasehold/simulation/slim";
import { init, initSync } from "leasehold/slim";

export const claim: Claim = {
    bucket_type: BucketType.USERNAMES,
    bucket_value: canonicalForm(BucketType.USERNAMES, "Alice"),
    subject: { subject_type: SubjectType.USER, id: 7n },
    source: { source_type: SourceType.USERS, id: new Uint8Array(8) },
};
export const kind: BucketType = 4;

export function free(run: Verification | Reconciliation | Simulation | Explorer): void {
    run.free();
}

export async function load(bytes: Uint8Array): Promise<void> {
    initSync(bytes);
    await init("/leasehold.wasm");
    await initSimulation(new ArrayBuffer(8));
}

export const tls: TlsFiles = { ca: "ca.pem", certificate: "a.pem", key: "a.key" };
export const options: AcquireOptions = { wait: 1 };
export const clients = [connect({ tls }), connectQueues({ tls })];
export const isHeld = (hold: HeldLock | Batch): boolean => hold.isHeld;
export const codeOf = (error: unknown): string | undefined => (error instanceof LeaseholdError ? error.code : undefined);
export const found = new Explorer(ruleWorld("ownership")).found();
