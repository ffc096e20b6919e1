// A page whose bundler gives the URL of an imported file.
import url from "leasehold/leasehold.wasm";
import { BucketType, canonicalForm, init } from "leasehold/slim";

async function start() {
    await init(new URL(url, import.meta.url));
    document.body.dataset.page = document.body.dataset.worker = canonicalForm(BucketType.USERNAMES, "Alice");
}

void start();
