// A page that finds the wasm file by the pattern of URLs that webpack knows.
import { BucketType, canonicalForm, init } from "leasehold/slim";

async function start() {
    await init(new URL("leasehold/leasehold.wasm", import.meta.url));
    document.body.dataset.page = document.body.dataset.worker = canonicalForm(BucketType.USERNAMES, "Alice");
}

void start();
