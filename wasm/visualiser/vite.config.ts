import { defineConfig } from "vitest/config";

export default defineConfig({
    // Use relative URLs, so that the page can be served from any path.
    base: "./",
    build: {
        // ES2022 is needed: the package waits for its wasm file by `await` at the top level of a
        // module.
        target: "es2022",
        // Do not inline small files as `data:` URLs, as Vite does by default: the page's content
        // security policy forbids them.
        assetsInlineLimit: 0,
    },
    worker: { format: "es" },
    preview: { host: "127.0.0.1" },
    test: { include: ["tests/**/*.test.ts"] },
});
