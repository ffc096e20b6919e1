import { fileURLToPath } from "node:url";

import { defineConfig } from "vitest/config";

const FETCHED = { find: /^leasehold\/simulation$/u, replacement: fileURLToPath(new URL("src/simulation.ts", import.meta.url)) };

export default defineConfig(({ mode }) => ({
    // Use relative URLs, so that the page can be served from any path.
    base: "./",
    // Tests run in Node, where the package's own entry needs no fetch.
    resolve: { alias: mode === "test" ? [] : [FETCHED] },
    build: {
        // ES2022 is needed: `src/simulation.ts` waits for the wasm file by `await` at the top level of a
        // module.
        target: "es2022",
        // Do not inline small files as `data:` URLs, as Vite does by default: the page's content
        // security policy forbids them.
        assetsInlineLimit: 0,
    },
    worker: { format: "es" },
    preview: { host: "127.0.0.1" },
    // A loaded machine may need more than the default of 5 seconds for a test that plays a long run.
    test: { include: ["tests/**/*.test.ts"], testTimeout: 60_000 },
}));
